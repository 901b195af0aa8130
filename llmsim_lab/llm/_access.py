"""Addresses of servers, and the keys and passwords that let us in, which are shown nowhere.

A secret leaves this package in the header of a request and in no other way. Servers and libraries
repeat it in errors, in redirects, in broken answers; ``Mask`` finds it there, in any of the forms
in which they write it.
"""

from __future__ import annotations

import base64
import html
import inspect
import ipaddress
import json
import logging
import os
import re
import traceback
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit
from weakref import WeakSet

import httpx
from pydantic import SecretStr

from llmsim_lab._util.text import clip, errors_behind
from llmsim_lab.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

Key = str | Callable[[], str | Awaitable[str]]
"""A key, or a function that returns it."""

_SHORTEST_KEY = 8
"""Characters; what is shorter is no key, but what local servers are given in place of one."""
_SHORTEST_MASKED = 4
"""Characters of a password, or another form of a secret; shorter ones are parts of many words."""
_ESCAPE = re.compile(r"\\(?:u00([2-7][0-9a-fA-F])|/)")
_LONGEST = 16_384
"""Characters of an address or a key: tokens of large identity services have some thousands."""
_LOCAL = {
    None: "127.0.0.1",
    "0.0.0.0": "127.0.0.1",
    "::": "::1",
}
"""What a server that listens everywhere is reached by on its own machine."""
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+(%[\w.-]+)?", re.IGNORECASE)


# --- addresses ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        url: without a user name or password.
        login: both, as in ``name:password``, where the address has them.
    """

    url: str
    login: SecretStr | None = None


def without_password(url: str) -> str:
    """Return an address for messages: one that may have a password or a key in it is masked."""
    if not re.search("[@?#]", url):
        return url
    scheme = re.match(r"https?://", url, re.IGNORECASE)
    return f"{scheme[0]}***" if scheme else "***"


def read_address(
    given: str | None,
    *,
    argument: str,
    variable: str,
    default: str,
    example: str,
    usual_port: int | None = None,
    usual_path: str = "",
) -> Address:
    """Return a server's address, from what a user writes; without a scheme it is http.

    An address to listen on, such as ``0.0.0.0`` or ``:8080``, becomes that of this machine. A given
    address without a password takes that of the environment's, where both are the same server: so a
    pickled backend, which leaves its password out, has one in another process.

    Args:
        given: the address; None takes the environment's.
        argument: its name, for messages.
        variable: the environment's variable that has one.
        default: where neither is there.
        example: how one is written.
        usual_port: where the address names neither a scheme nor a port.
        usual_path: where it has no path.

    Raises:
        ConfigError: it is not a server's address, or has a query in it.
    """
    if given is not None and not isinstance(given, str):
        # Without the value, which may have a password in it.
        raise ConfigError(
            f"{argument} is of the type {type(given).__name__} and must be a text: {example}"
        )
    environment = os.environ.get(variable, "")
    source = argument if given else variable
    text = given or environment or default
    try:
        address = _address(text, usual_port, usual_path)
    except (ValueError, httpx.InvalidURL):
        encoding_hint = ""
        if re.search("[@?#]", text):
            encoding_hint = (
                "; in a user name or password write @, /, ? and # as %40, %2F, %3F and %23, and "
                "leave out a query, which is not sent"
            )
        # From None: the library's error would show the password.
        raise ConfigError(
            f"{source}={clip(without_password(text), 200)!r} is not a server's address; write it "
            f"as {example}{encoding_hint}"
        ) from None
    if given and environment and address.login is None:
        with suppress(ValueError, httpx.InvalidURL):
            of_environment = _address(environment, usual_port, usual_path)
            if of_environment.url == address.url:
                return of_environment
    return address


def _address(
    text: str,
    usual_port: int | None,
    usual_path: str,
) -> Address:
    """Return what ``read_address`` does.

    Raises:
        ValueError: it is not a server's address.
        InvalidURL: likewise.
    """
    # Quotes that a shell left in: a .env file's.
    text = text.strip().strip("\"'")
    scheme, has_scheme, rest = text.rpartition("://")
    login, has_login, place = rest.rpartition("@")
    # "://box" has the sign and no scheme before it.
    is_text = text.isprintable() and len(text) <= _LONGEST
    if not is_text or bool(has_scheme) != bool(scheme):
        raise ValueError("it is not an address")
    url = _url(scheme.lower(), place, usual_port)
    if "/" not in url.partition("://")[2]:
        url += usual_path
    if not has_login:
        return Address(url)
    # A browser would read http://me/x@box as the host "me": where would the password go?
    if re.search(r"[\s/?#]", login):
        raise ValueError("it has characters that end the host")
    name, _, password = login.partition(":")
    return Address(url, SecretStr(f"{unquote(name)}:{unquote(password)}"))


def _url(
    scheme: str,
    place: str,
    usual_port: int | None,
) -> str:
    """Return a server's URL.

    Args:
        scheme: in lower case; empty where none was written.
        place: what follows it, without a user name or password.
        usual_port: where there is neither a scheme nor a port.

    Raises:
        ValueError: it is not a server's address.
        InvalidURL: likewise.
    """
    if scheme not in ("", "http", "https"):
        raise ValueError(f"{scheme} is another protocol")
    host, slash, path = place.partition("/")
    with suppress(ValueError):
        # Ollama takes OLLAMA_HOST=::1 as well; beside a port it needs brackets.
        host = f"[{ipaddress.IPv6Address(host)}]"
    split = urlsplit(f"{scheme or 'http'}://{host}{slash}{path}")
    port = split.port
    # To listen on 0 means any port; to connect to it means nothing.
    if port == 0:
        raise ValueError("no server can be reached there")
    if port is None and not scheme:
        port = usual_port
    if split.query or split.fragment or re.search(r"[\s?#]", place):
        raise ValueError("it has a query")
    if split.hostname is None and (slash or scheme) and not host.startswith(":"):
        raise ValueError("it names no host")  # as in http:///box
    if split.hostname in ("http", "https") and not scheme:
        raise ValueError("its scheme lacks ://")  # as in http:/box
    name = str(_LOCAL.get(split.hostname, split.hostname))
    if not _HOST.fullmatch(name):
        raise ValueError("its host has characters that no host has")
    if ":" in name:
        name = f"[{name.replace('%25', '%').replace('%', '%25')}]"
    written_port = f":{port}" if port else ""
    url = f"{split.scheme}://{name}{written_port}{split.path.rstrip('/')}"
    # For what it raises: a request would fail with the same error, hours later. The host is decoded
    # only where it is asked for.
    _ = httpx.URL(url).host
    return url


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that the environment names.

    Attributes:
        url: with its user name and password, if it has them.
        shown: for messages.
    """

    url: SecretStr
    shown: str

    @property
    def login(self) -> SecretStr | None:
        """Its user name and password."""
        split = urlsplit(self.url.get_secret_value())
        if split.username is None:
            return None
        return SecretStr(f"{unquote(split.username)}:{unquote(split.password or '')}")


def env_proxy(url: str) -> Proxy | None:
    """Return the proxy that the environment names for a URL; this machine is reached without."""
    at = httpx.URL(url)
    is_local = at.host in ("localhost", "::1") or at.host.startswith("127.")
    if is_local or urllib.request.proxy_bypass(at.host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(at.scheme) or proxies.get("all")
    if not proxy:
        return None
    # curl takes HTTP_PROXY=box:3128 too.
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme, _, rest = proxy.partition("://")
    return Proxy(SecretStr(proxy), f"{scheme}://{rest.rpartition('@')[2]}")


# --- keys and passwords ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credential:
    """What one request shows a server to be let in.

    Attributes:
        kind: by HTTP's name.
        secret: the key; or the user name and password, with a colon between them.
    """

    kind: Literal["Bearer", "Basic"]
    secret: SecretStr

    @property
    def header(self) -> str:
        """The value of the header ``Authorization``."""
        secret = self.secret.get_secret_value()
        if self.kind == "Basic":
            secret = base64.b64encode(secret.encode()).decode()
        return f"{self.kind} {secret}"


class Access:
    """What lets requests in to a server: a key, or a user name and password.

    Args:
        key: the key, or a function that returns it, also an ``async`` one, called for each request;
            None takes the environment's, and an empty text none.
        variable: the environment's variable that has a key.
        argument: what the key is called by those who give it.
        login: user name and password of the server's address, which go before a key of the
            environment.

    Attributes:
        kept: what a pickle keeps of it: a function. A key that is a text stays in this process, and
            the other one takes its environment's.

    Raises:
        ConfigError: the key has characters that no key has; or there are a key and a password.
    """

    def __init__(
        self,
        key: Key | None,
        *,
        variable: str,
        argument: str,
        login: SecretStr | None = None,
    ) -> None:
        self.variable = variable
        self.argument = argument
        self._login = login
        if key and login is not None:
            raise ConfigError(
                f"{argument}= is given, and the address has a user name and password; a server is "
                "shown one of them: leave the other out"
            )
        if key is None and login is None:
            key = os.environ.get(variable, "").strip()
        self.kept: Callable[[], str | Awaitable[str]] | None = None
        self._key: SecretStr | None = None
        if callable(key):
            self.kept = key
        elif key:
            self._key = self._checked(key)

    def __bool__(self) -> bool:
        """Whether requests show anything."""
        return not (self.kept is None and self._key is None and self._login is None)

    async def credential(self) -> Credential | None:
        """Return what a request of this moment shows.

        Raises:
            ConfigError: a function returned what no key is.
        """
        if self._login is not None:
            return Credential("Basic", self._login)
        secret = self._key
        if self.kept is not None:
            key: object = self.kept()
            if inspect.isawaitable(key):
                key = await key
            secret = self._checked(key)
        if secret is None:
            return None
        return Credential("Bearer", secret)

    def _checked(self, value: object) -> SecretStr:
        """Return a key that can stand in a header.

        Raises:
            ConfigError: it cannot; the message does not show it, nor do the errors of HTTP clients.
        """
        key = value.strip() if isinstance(value, str) else ""
        if not re.fullmatch(r"[!-~]+", key) or len(key) > _LONGEST:
            raise ConfigError(
                f"the API key ({type(value).__name__}, not shown) is empty, not a text, longer "
                f"than {_LONGEST:,} characters, or has characters that no key has, such as line "
                f"breaks; see {self.variable}, or {self.argument}="
            )
        return SecretStr(key)


# --- masks ----------------------------------------------------------------------------------------


class Mask:
    """Puts ``***`` in place of secrets in texts from outside.

    Args:
        credential: what a request shows, if anything.
        proxy: user name and password of a proxy, if it has them.
    """

    def __init__(
        self,
        credential: Credential | None,
        proxy: SecretStr | None = None,
    ) -> None:
        forms = set[str]()
        if credential is not None and credential.kind == "Bearer":
            key = credential.secret.get_secret_value()
            if len(key) >= _SHORTEST_KEY:
                forms |= _forms(key)
        logins = [] if proxy is None else [proxy]
        if credential is not None and credential.kind == "Basic":
            logins.append(credential.secret)
        for login in logins:
            forms |= _forms_of_login(login.get_secret_value())
        # A secret of a letter or two would put *** all over a text.
        long_forms = [form for form in forms if len(form) >= _SHORTEST_MASKED]
        # The longest first, since one may begin with another.
        ordered = sorted(long_forms, key=len, reverse=True)
        self._forms = [_lowered(form) for form in ordered]
        self._firsts = {form[0] for form in self._forms}
        self._pattern = re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE)
        if ordered:
            _masks.add(self)
            _mask_http_logs()

    def __bool__(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._forms)

    def _is_in(self, text: str) -> bool:
        lower = _lowered(text)  # looking for each form takes a tenth of the time of the pattern
        return any(form in lower for form in self._forms)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not self:
            return text
        if "\\" in text:
            # JSON in a reply, which is read later, may write any letter as its number.
            plain = _ESCAPE.sub(_unescaped, text)
            if self._is_in(plain):
                text = plain
        if not self._is_in(text):
            return text
        return self._pattern.sub("***", text)

    def value(self, value: T) -> T:
        """Return a value of JSON whose texts, as deep as they are, have no secrets."""
        masked: Any = value
        if isinstance(value, str):
            masked = self.text(value)
        elif isinstance(value, dict):
            masked = {self.text(name): self.value(item) for name, item in value.items()}
        elif isinstance(value, list):
            masked = [self.value(item) for item in value]
        return cast("T", masked)

    def known_length(self, text: str) -> int:
        """Return up to where a text can be judged, if more of it may follow."""
        # The longest form comes first; what begins before it would be whole by now.
        longest = len(self._forms[0])
        tail = _lowered(text[-longest:])
        for start, letter in enumerate(tail):
            if letter not in self._firsts:  # which is quick to see
                continue
            rest = tail[start:]
            if any(form.startswith(rest) for form in self._forms):
                return len(text) - len(rest)
        return len(text)

    def line(self, line: bytes) -> bytes:
        """Return bytes without secrets."""
        # Latin-1 reads any bytes, and most lines have no secret.
        if not self or not self._is_in(line.decode("latin-1")):
            return line
        return self.text(line.decode(errors="replace")).encode()

    def document(self, content: bytes) -> bytes:
        """Return a document of JSON, or another text, without secrets."""
        if not self:
            return content
        with suppress(ValueError, RecursionError):
            value = json.loads(content)
            masked = self.value(value)
            if masked != value:  # also of a secret that is written with escapes
                return json.dumps(masked).encode()
        return self.line(content)

    def errors(self, error: BaseException) -> None:
        """Take secrets out of an error and those behind it."""
        for cause in errors_behind(error):
            # They are not for those who debug: one has the key, the other may repeat it.
            if isinstance(cause, httpx.HTTPError):
                cause.request = None  # type: ignore[assignment]
            if isinstance(cause, httpx.HTTPStatusError):
                cause.response = None  # type: ignore[assignment]
            if not self:
                continue
            cause.args = tuple(self.value(argument) for argument in cause.args)
            # Which is no member of its ``vars``.
            if isinstance(cause, OSError) and isinstance(cause.strerror, str):
                cause.strerror = self.text(cause.strerror)
            for name, value in list(vars(cause).items()):
                if isinstance(value, str):
                    setattr(cause, name, self.text(value))


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character that JSON may write as an escape, unless it has to."""
    if escape[1] is None:
        return "/"
    character = chr(int(escape[1], 16))
    return escape[0] if character in '"\\' else character


def _lowered(text: str) -> str:
    """Return a text in small letters, as long as it was.

    One capital letter, the dotted one of Turkish, becomes two: places in the text would be wrong.
    """
    if text.isascii() or "\u0130" not in text:
        return text.lower()
    return text.replace("\u0130", "i").lower()


@lru_cache(maxsize=64)
def mask_of(credential: Credential | None, proxy: SecretStr | None) -> Mask:
    """Return the mask of what requests show; making one takes longer than using it."""
    return Mask(credential, proxy)


def _forms(secret: str) -> set[str]:
    """Return how a secret may be written by a server or a library that repeats it."""
    raw = secret.encode()
    # In base64, as a header of a user name and password has it.
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    forms = {
        secret,
        *(base64_text.rstrip("=") for base64_text in encoded),
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        html.escape(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
    # Errors and logs quote what they cannot read, h11's as bytes.
    quoted: set[str] = set()
    for form in forms:
        quoted.add(repr(form)[1:-1])
        quoted.add(repr(form.encode())[2:-1])
    return forms | quoted


def _forms_of_login(login: str) -> set[str]:
    """Return how a user name and password may be written: together, and the password alone."""
    name, _, password = login.partition(":")
    forms = _forms(login)
    forms.add(f"{quote(name, safe='')}:{quote(password, safe='')}")
    secret = password or name  # some services take a key as the name
    if len(secret) >= _SHORTEST_MASKED:
        forms |= _forms(secret)
    return forms


_masks: WeakSet[Mask] = WeakSet()


def _mask_http_logs() -> None:
    """Take secrets out of what the HTTP library logs: at DEBUG, all headers of an answer."""
    for part in ("connection", "http11", "http2", "proxy", "socks"):
        # Not of ``httpcore`` above them: a logger's filters see only what it logs itself.
        logger = logging.getLogger(f"httpcore.{part}")
        if _mask_record not in logger.filters:
            logger.addFilter(_mask_record)


def _mask_record(record: logging.LogRecord) -> bool:
    # Of the whole line: a secret may stand in its arguments, or in both.
    text = record.getMessage()
    for mask in list(_masks):
        text = mask.text(text)
    record.msg = text
    record.args = ()
    # A filter that returns False would swallow the line.
    return True


NO_MASK = Mask(None)


# --- local variables ------------------------------------------------------------------------------


def clear_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an error, and those behind it, came through.

    An address or a key is in those of ours and of the HTTP client's, and tools for debugging show
    them. Frames that still run keep theirs.
    """
    for cause in errors_behind(error):
        traceback.clear_frames(cause.__traceback__)


class LocalsCleared:
    """Clears the local variables of the frames below, where an error comes out of them.

    In place of ``without_locals`` where each call of a model passes: a frame less. What the
    function that uses it has itself stays, which must be no secret.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: object,
    ) -> None:
        if error is not None:
            clear_locals(error)


def without_locals(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function's errors come without its arguments and local variables, which are secret."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wait(*args: P.args, **kwargs: P.kwargs) -> object:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                del args, kwargs
                clear_locals(error)
                raise

        return wait  # type: ignore[return-value]  # a coroutine function as well

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_locals(error)
            raise

    return call
