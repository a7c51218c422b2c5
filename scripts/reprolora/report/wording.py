"""Names, words and numbers as people read them."""

import re
from collections.abc import Mapping


def full_name(arm: Mapping) -> str:
    """An arm named in full: its folder."""
    return "/".join([arm["model"], arm["method"], *filter(None, [arm.get("variant")]), f"seed{arm['seed']}"])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def unbroken(text: str) -> str:
    """`text` with no line break between a number and its sign or unit."""
    return re.sub(r"(?<=\d) (?=%|points?\b)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def energy(kwh: float) -> str:
    """Energy for people."""
    return f"{kwh:.3g} kWh" if kwh >= 1 else f"{kwh * 1000:.3g} Wh"


def score(value: float) -> str:
    return f"{value:.3f}"


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes for people."""
    unit, divisor = ("GB", 1e9) if value >= 1e9 else ("MB", 1e6) if value >= 1e6 else ("kB", 1e3)
    return f"{value / divisor:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"
