"""Bearer tokens: what they look like, and whether one that is shown is good (contract C14.3).

`hf_<id>_<secret>`: the id finds the record, the secret is 256 random bits. Only its SHA-256 is kept: a secret of that
size needs no slow hash. It is compared in constant time, also where there is no such record.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import InvalidTask
from holdfast.model.token import NewToken, Scope, Token
from holdfast.policy.admission import checked_name

_FORM = re.compile(r"hf_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


def made(
    name: str,
    scopes: Sequence[str],
    *,
    lifetime_seconds: float | None,
    token_hex: Callable[[int], str],
    token_urlsafe: Callable[[int], str],
) -> tuple[NewToken, str]:
    """A new token's record, and the token itself. Randomness is handed in."""
    token_id, secret = token_hex(8), token_urlsafe(32)
    new = NewToken(
        id=token_id,
        name=checked_name(name, what="the token's name"),
        scopes=checked_scopes(scopes),
        digest=digest(secret),
        lifetime_seconds=lifetime_seconds,
    )
    return new, f"hf_{token_id}_{secret}"


def checked_scopes(scopes: Any) -> tuple[Scope, ...]:
    known = [scope.value for scope in Scope]
    for scope in scopes:
        if scope not in known:
            raise InvalidTask(f"{scope!r} is no scope; choose from {', '.join(known)}")
    if not scopes:
        raise InvalidTask(f"a token needs at least one scope; choose from {', '.join(known)}")
    return tuple(Scope(scope) for scope in known if scope in scopes)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def parts(shown: str) -> tuple[str, str] | None:
    """The id and the secret of what a caller shows, or None if it is no token at all."""
    matched = _FORM.fullmatch(shown)
    return None if matched is None else (matched[1], matched[2])


def is_good(record: Token | None, secret: str, now: datetime) -> bool:
    same = hmac.compare_digest(digest(secret), _NOBODY if record is None else record.digest)
    return (
        record is not None
        and same
        and record.revoked_at is None
        and (record.expires_at is None or now < record.expires_at)
    )
