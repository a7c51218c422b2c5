"""One file of a package, from whatever package index the user's pip is set up for, without running any of it.

`pip download` will not do: once it has a source distribution and has checked its hash, it runs the distribution's
setup code to learn its dependencies (and installs unpinned build requirements for that), and no option turns this off.
Reading the index ourselves would mean doing again what pip does with index-url, extra-index-url, find-links, client and
CA certificates, proxies, netrc, keyring and trusted hosts. So this asks pip's own classes for two things, the addresses
of a package's files and a session to fetch one with, and builds or unpacks nothing. pip calls these classes internal;
the ones used here are the same in pip 22.0 to 26.3. They are imported when needed, because importing them takes time.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprolora.errors import UserError
from reprolora.files import sha256_of

CHUNK = 1 << 20
PIP_OPTIONS = [  # a file is only fetched, so what could be installed here does not matter
    *("--only-binary", ":none:", "--no-binary", ":none:"),
    "--ignore-requires-python",
]


def fetch_package(name: str, version: str, sha256: str, output: Path) -> None:
    """Write the file of `name` `version` that has this sha256 to `output`; nothing is there if it cannot be had."""
    package = f"pypi:{name}=={version}"
    with _pip(package) as (command, options):
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        with _complaints() as complaints:
            links = [found.link for found in finder.find_all_candidates(name) if _is_version(found.version, version)]
        hashes = {link: link.hash if link.hash_name == "sha256" else None for link in links}
        # An index that does not tell the hashes (a plain folder) leaves only trying; a told hash that differs is final.
        for link in [link for link in links if hashes[link] == sha256] or [
            link for link in links if hashes[link] is None
        ]:
            _download(session, link.url_without_fragment, output, options.retries, package)
            found = sha256_of(output)
            if found == sha256:
                return
            hashes[link] = found
            output.unlink()
    if not links:
        reason = complaints[-1] if complaints else "it is not in the index"
        raise UserError(
            f"{package}: pip found no such package or version ({reason}); "
            "check the network, `pip config list` and the version"
        )
    offered = ", ".join(f"{link.filename} {hashes[link]}" for link in links)
    raise UserError(
        f"{package}: no file has the pinned sha256 {sha256}; the index has {offered}. If you trust one of these, "
        "put its sha256 into the catalogue"
    )


def _is_version(found: object, wanted: str) -> bool:
    from pip._vendor.packaging.version import InvalidVersion, Version

    try:
        return str(found) == str(Version(wanted))
    except InvalidVersion:
        raise UserError(f"{wanted!r} is not a version; write the source as pypi:NAME==VERSION") from None


@contextmanager
def _pip(package: str) -> Iterator[tuple]:
    """pip's download command and its options as the user's configuration and environment set them."""
    try:
        from pip._internal.commands.download import DownloadCommand
        from pip._internal.exceptions import PipError
    except ImportError as error:
        raise UserError(f"{package}: this Python has no usable pip ({error}); run `python -m ensurepip`") from error
    command = DownloadCommand("download", "fetch one file")
    with command.main_context():
        options, _ = command.parse_args(PIP_OPTIONS)
        try:
            yield command, options
        except PipError as error:
            raise UserError(f"{package}: pip: {error}") from error


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What pip logs about indexes that it could not read; it goes on without them and tells only at debug level."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg.startswith("Could not fetch URL"):
                messages.append(record.getMessage())

    logger = logging.getLogger("pip._internal.index.collector")
    handler, level, propagate = Keep(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _download(session, url: str, output: Path, retries: int, package: str) -> None:
    """Fetch `url`, going on where a broken connection stopped; pip's `retries` bounds the attempts."""
    from pip._vendor.requests.exceptions import HTTPError, RequestException
    from pip._vendor.urllib3.exceptions import HTTPError as TransportError
    from tqdm import tqdm

    done, total = 0, None
    for _ in range(retries + 1):
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
        try:
            with session.get(url, headers=headers, stream=True) as response:
                response.raise_for_status()
                if response.status_code != 206:
                    done = 0
                if "Content-Length" in response.headers:
                    total = done + int(response.headers["Content-Length"])
                bar = tqdm(total=total, initial=done, unit="B", unit_scale=True, desc=package, disable=None)
                with bar, output.open("r+b" if done else "wb") as stream:
                    stream.seek(done)
                    for chunk in response.iter_content(CHUNK):
                        stream.write(chunk)
                        done += len(chunk)
                        bar.update(len(chunk))
            if total is None or done >= total:
                return
            reason: object = "the connection closed"
        except HTTPError as error:
            raise UserError(f"{package}: the package index answered: {error}") from error
        except (RequestException, TransportError) as error:
            reason = error
        logging.info("%s: interrupted after %d of %s bytes (%s)", package, done, total, reason)
    raise UserError(
        f"{package}: the download broke off after {done} of {total} bytes ({reason}); check the network and run again"
    )
