"""Keeps secrets out of anything that a person or a log may read."""

from __future__ import annotations

import re

# Up to the last @, since a careless password may hold a slash; but a port is no password.
_URL_PASSWORD = re.compile(
    r"(?P<head>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@?#]*):(?!\d{1,5}[/?#\s])[^\s\"]*@"
)
_KEY_VALUE = re.compile(
    r"(?P<key>\b(?:password|passwd|pwd|token|secret|sslpassword)\b\s*[=:]\s*)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<key>\bbearer\s+)[A-Za-z0-9._~+/=-]+", re.IGNORECASE)


def redact(text: str) -> str:
    """Return `text` with the passwords of URLs, `password=` pairs and bearer tokens blotted out.

    Works on a bare DSN as on a sentence that quotes one; what holds no secret comes back as it was.
    """
    text = _URL_PASSWORD.sub(r"\g<head>:***@", text)
    text = _KEY_VALUE.sub(r"\g<key>***", text)
    return _BEARER.sub(r"\g<key>***", text)
