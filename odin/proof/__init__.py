"""The proof of a run: what its rows say about the promises, judged without odin's own code.

`rows` holds what the tables hold, as read; `judge_run` and `judge_chain` answer one finding for
each invariant. Nothing here opens a connection or tells the time, and nothing here imports the code
that wrote the rows: a fault in the fold or in a decision must not be able to excuse itself.
"""

from __future__ import annotations

from odin.proof.certificate import Certificate, certify
from odin.proof.findings import Finding, Verdict, worst
from odin.proof.judge import judge_chain, judge_run
from odin.proof.rows import Chain, RunRows

__all__ = [
    "Certificate",
    "Chain",
    "Finding",
    "RunRows",
    "Verdict",
    "certify",
    "judge_chain",
    "judge_run",
    "worst",
]
