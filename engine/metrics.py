"""What an engine counts, for its metrics page and for telemetry alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .node import Node

Sample: TypeAlias = tuple[str, str, float, str]
"""(name, kind, value, help)"""


def samples(node: Node) -> list[Sample]:
    """Return the samples of this moment."""
    decisions = sum(lane.decision_count for lane in node.lanes)
    groups = sum(lane.committed_count for lane in node.lanes)
    found: list[Sample] = [
        ("odin_shard_owned", "gauge", len(node.shards.terms), "Shards that this node owns."),
        ("odin_workflow_started_total", "counter", node.counts.started, "Runs begun."),
        ("odin_workflow_closed_total", "counter", node.counts.closed, "Runs closed."),
        ("odin_decisions_total", "counter", decisions, "Decisions committed."),
        ("odin_groups_total", "counter", groups, "Groups committed."),
        (
            "odin_term_ended_total",
            "counter",
            node.counts.ended_terms,
            "Terms that ended: handed over, refused, or in doubt.",
        ),
        ("odin_runs_in_memory", "gauge", _runs(node), "Runs in memory."),
        ("odin_worker_linked", "gauge", len(node.sessions), "Workers linked to this node."),
        (
            "odin_lease_renew_seconds",
            "gauge",
            node.membership.renewal_seconds,
            "How long the newest renewal took.",
        ),
        ("odin_forwarded_total", "counter", node.peers.forwarded_count, "Requests forwarded."),
        (
            "odin_message_refused_total",
            "counter",
            node.hub.refused_count,
            "Messages of workers that tripped over something.",
        ),
        (
            "odin_run_damaged_total",
            "counter",
            node.loader.damaged_count,
            "Runs met whose rows cannot be read.",
        ),
        ("odin_run_deleted_total", "counter", node.retention.deleted_count, "Runs deleted by age."),
        ("odin_due_total", "counter", node.due.fired_count, "Decisions on what was due."),
    ]
    relay = node.relay
    if relay is not None:
        found += [
            ("odin_outbox_depth", "gauge", relay.depth, "Rows without a confirm."),
            (
                "odin_outbox_age_seconds",
                "gauge",
                relay.oldest_age_ms / 1_000,
                "How long the oldest of them waits.",
            ),
            (
                "odin_outbox_messages_total",
                "counter",
                relay.message_count,
                "Messages sent, each with one task or several.",
            ),
        ]
    admission = node.admission
    if admission is not None:
        found += [
            (
                "odin_admission_admitted_total",
                "counter",
                admission.admitted_count,
                "Starts let in.",
            ),
            ("odin_admission_refused_total", "counter", admission.refused_count, "Starts refused."),
        ]
    return found


def _runs(node: Node) -> int:
    return sum(len(term.runs) for term in node.shards.terms.values())
