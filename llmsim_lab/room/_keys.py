"""A room's secrets: its code, what its links carry, and what people's browsers keep."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Of codes that people read and type: none looks like another."""
_CODE_LETTERS = 6
_DONE_LETTERS = 8
_SECRET_BYTES = 18


@dataclass(frozen=True)
class RoomKeys:
    """What opens a room.

    All but the code follow from one secret, so that links and cookies are the same after a restart.

    Attributes:
        room: names the room's cookies; on one machine cookies of all ports go to each.
        code: what people type.
        secret: what the rest is derived from; it is never sent.
    """

    room: str
    code: str
    secret: str

    @classmethod
    def new(cls) -> RoomKeys:
        """Return the keys of a new room."""
        # Six of 31 letters are some 900 million; wrong ones are answered ever more slowly.
        code = "".join(secrets.choice(LETTERS) for _ in range(_CODE_LETTERS))
        return cls(
            room=secrets.token_hex(3),
            code=code,
            secret=secrets.token_urlsafe(24),
        )

    @property
    def join(self) -> str:
        """What the link in the QR code carries."""
        return self._derived("join")

    @property
    def teacher(self) -> str:
        """What opens the teacher's page."""
        return self._derived("teacher")

    @property
    def projector(self) -> str:
        """What opens the projector's page."""
        return self._derived("projector")

    def of_label(self, label: str) -> str:
        """Return what the link of one label carries."""
        return self._derived(f"label {label}")

    def completion_code(self, guest: str) -> str:
        """Return what a participant shows at the end."""
        digest = self._digest(f"done {guest}")
        # A little uneven, since 256 is no multiple of 31; nobody guesses eight of these either way.
        letters = [LETTERS[byte % len(LETTERS)] for byte in digest[:_DONE_LETTERS]]
        return "".join(letters)

    def _derived(self, purpose: str) -> str:
        secret = self._digest(purpose)[:_SECRET_BYTES]
        return base64.urlsafe_b64encode(secret).decode()

    def _digest(self, purpose: str) -> bytes:
        # One way: who has one link cannot work out another, nor the secret.
        return hmac.digest(
            self.secret.encode(),
            purpose.encode(),
            "sha256",
        )


def new_token() -> str:
    """Return what a participant's browser keeps."""
    return secrets.token_urlsafe(24)


def token_digest(token: str) -> str:
    """Return what the room keeps of a token: whoever reads its files cannot take a seat."""
    # Without salt: a token is 24 random bytes, which no list of guesses has.
    return hashlib.sha256(token.encode()).hexdigest()


def is_same(given: object, expected: str) -> bool:
    """Return True for the same text; how long that takes tells nothing of where they differ."""
    # What comes from outside may be anything, half characters included.
    received = str(given).encode(errors="replace")
    return hmac.compare_digest(received, expected.encode())
