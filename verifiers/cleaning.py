r"""An answer without what only wraps or decorates it, and rare spellings as usual ones.

Nothing here changes what a text means: dollars and bold go, ``½`` becomes ``1/2``, ``_8C_3``
becomes a binomial. Each rewriting runs only when the sign that it looks for occurs.
"""

from __future__ import annotations

import re
import unicodedata

from .limits import MAX_CHARS, TooLarge

__all__ = ["clean"]

_INVISIBLE = str.maketrans(dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad"))
_MARKUP = re.compile(r"<\|[a-z_]{2,20}\|>|</?(?:s|b|i|p|br|em|strong|answer)\s*/?>|&nbsp;")
"""End marks of chat templates and HTML, which models leave behind answers."""
_ORNAMENT = re.compile("[\u2600-\u27bf\u25a0\u25a1\u220e\ufe0f\U0001f300-\U0001faff]")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_WIDE = re.compile("[\uff00-\uffef\ufe50-\ufe6f]")
_CYCLE = re.compile(
    r"(?P<whole>\d{0,40})\.(?P<fixed>\d{0,40})\s*"
    r"(?:\\overline\s*\{\s*(?P<bar>\d{1,40})\s*\}"
    r"|\\dot\{?(?P<first>\d)\}?(?P<middle>\d{0,40})(?:\\dot\{?(?P<last>\d)\}?)?)"
)
_CHOOSE = (
    re.compile(r"(?:\{\s*\})?[_^]\{?(\d{1,4})\}?\s*([CP])_\{?(\d{1,4})\}?"),
    re.compile(r"(?<![A-Za-z\\])([CP])\((\d{1,4}),\s*(\d{1,4})\)"),
    re.compile(r"(?<![A-Za-z\\])C_\{?(\d{1,4})\}?\^\{?(\d{1,4})\}?"),
)
_DECORATION = re.compile(
    r"\\(?:color|textcolor|hspace|vspace)\*?\s*\{[^{}]*\}|\\underline(?![A-Za-z])"
    r"|\\(?:bf|rm|it|sf|Large|large|small)(?![A-Za-z])"
)
_LEADING = re.compile(r"^\s*(?:\\(?:displaystyle|textstyle|[,;:! ])\s*)+")
_LOST = re.compile(r"(?<![\\A-Za-z])(?=[dt]?frac\s*\{)")
_ROW_SPACE = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]")
_UNIT_FRACTION = re.compile(
    r"\\[dt]?frac\s*\{\s*\\(?:text|mathrm)\s*\{([^{}]*)\}\s*\}"
    r"\s*\{\s*\\(?:text|mathrm)\s*\{([^{}]*)\}(\^\{?\d\}?)?\s*\}"
)
_FAMILIES = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
_BLACKBOARD = re.compile(r"\\(?:mathbb|Bbb)\s*(?:\{\s*([RZNQC])\s*\}|([RZNQC])(?![A-Za-z]))")
_SYSTEM = re.compile(
    r"\\left\s*\\\{\s*\\begin\{array\}\s*(?:\{[lcr|\s]*\})?(.*?)\\end\{array\}\s*\\right\s*\.",
    re.DOTALL,
)
_BASE = re.compile(r"(?<![A-Za-z.\d])(\d{1,40})\s*\(?\s*(?:in\s+)?base[- ](\d{1,2})\s*\)?")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_INCHES = re.compile(r"(?<![A-Za-z\\{])in(?=\s*[\^²³])")
_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_STOPPED = re.compile(r"\b(sq|cu|ft|in|cm|hr|hrs|min|lb|lbs|oz|yd|mi|sec)\.(?=\s|$)")
_REALS = ((re.compile(r"\\reals\s*(?:\^\s*\{?\s*\+\s*\}?|_\s*\{\s*>\s*0\s*\})"), r"(0,\\infty)"),)


def clean(text: str) -> str:
    """The text without what only wraps it: dollars, bold, a full stop, full-width forms.

    Raises:
        TooLarge: it is longer than what is parsed.

    >>> clean("**$x+1$**.")
    'x+1'
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"{len(text)} characters, more than {MAX_CHARS}")
    if "<" in text or "&" in text:
        text = _MARKUP.sub(" ", text).replace("&lt;", "<").replace("&gt;", ">")
    if not text.isascii():
        text = _plain_characters(text)
    if "\\" in text:
        text = _plain_commands(text)
    if "frac{" in text:
        text = _LOST.sub(lambda _: "\\", text)
    if "C" in text or "P" in text:
        text = _counted(text)
    if "{:" in text:
        text = text.replace("{:}", ":")
    if "in" in text:
        text = _INCHES.sub(r"\\text{in}", text)
    if "base" in text:
        text = _BASE.sub(r"\1_{\2}", text)
    if "10" in text:
        text = _TIMES.sub(r" \\times ", text)
    if "." in text:
        text = _STOPPED.sub(r"\1", text)
    if text.startswith(("*", "_")) or text.endswith("*"):
        text = re.sub(r"^(\*{1,2}|__?)(?=\S)(.+?)\1$", r"\2", text.strip(), flags=re.DOTALL)
        text = text.replace("**", "") if text.startswith("**") or text.endswith("**") else text
    return _unwrapped(text)


def _unwrapped(text: str) -> str:
    text = text.strip().strip("`").strip()
    if "$" in text:
        bare = text.replace("\\$", "")
        if "$" in bare and bare.count("$") % 2 == 0:
            text = re.sub(r"(?<!\\)\$", " ", text).strip()
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing):
            text = text[2:-2].strip()
    while (
        text
        and (text[-1] in ".。,;" or text.endswith(("\\ ", "\\")))
        and not text.endswith(("...", "\\\\"))
    ):
        text = text[:-1].rstrip()
    return text


def _plain_characters(text: str) -> str:
    """ASCII where a character is only another form of it."""
    text = _ORNAMENT.sub("", text.translate(_INVISIBLE))
    text = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _VULGAR.sub(_vulgar, text)
    text = re.sub("[₀-₉]+", lambda match: f"_{{{match.group().translate(_LOWERED)}}}", text)
    return text.replace("⁄", "/").replace("ℝ", "\\reals ")


def _vulgar(match: re.Match[str]) -> str:
    """One character such as ½ as its digits; after a whole number it stays a mixed number."""
    return f" {unicodedata.normalize('NFKC', match.group()).replace('⁄', '/')} "


def _plain_commands(text: str) -> str:
    r"""LaTeX without decoration, and with usual commands for rare ones."""
    if "\\\\" in text:
        text = _single_backslashes(text)
    if "\\overline" in text or "\\dot" in text:
        text = _CYCLE.sub(_repeating, text)
    if "bb" in text:
        text = _BLACKBOARD.sub(lambda m: f"\\{_FAMILIES[m[1] or m[2]]} ", text)
    if "reals" in text:
        for pattern, plain in _REALS:
            text = pattern.sub(plain, text)
    if "array" in text:
        text = _SYSTEM.sub(lambda m: rf"\begin{{cases}}{m[1]}\end{{cases}}", text)
    if "not" in text:
        text = re.sub(r"\\not\s*=", lambda _: r"\neq ", text)
    text = _DECORATION.sub(" ", text).replace("\\text{\\$}", "\\$")
    text = _LEADING.sub("", text)
    if "frac" in text:
        text = _UNIT_FRACTION.sub(r"\\text{ \1/\2}\3", text)
    return text


def _single_backslashes(text: str) -> str:
    """Commands that were escaped twice on their way here; row ends stay."""
    if "begin" not in text:
        return re.sub(r"\\\\(?=[A-Za-z{}%$])", lambda _: "\\", text)
    if not re.search(r"(?<!\\)\\(?!\\)", text):
        return text.replace("\\\\", "\\")
    return _ROW_SPACE.sub(lambda _: "\\\\ ", text)


def _repeating(match: re.Match[str]) -> str:
    r"""``0.1\overline{6}`` and ``0.1\dot6`` as the fraction that they are."""
    whole, fixed = match["whole"] or "0", match["fixed"]
    cycle = match["bar"] or f"{match['first']}{match['middle']}{match['last'] or ''}"
    if match["bar"] is None and match["middle"] and match["last"] is None:
        return match.group()  # a digit without its dot: not understood, left to the parser
    bottom = 10 ** len(fixed) * (10 ** len(cycle) - 1)
    return f"({int(whole + fixed + cycle) - int(whole + fixed)}/{bottom})"


def _counted(text: str) -> str:
    r"""``_8C_3``, ``C(8,3)``, ``C_8^3`` as binomials, ``P(10,3)`` as a falling factorial."""
    before, call, raised = _CHOOSE
    text = before.sub(lambda m: _count(m[2], m[1], m[3]), text)
    text = call.sub(lambda m: _count(m[1], m[2], m[3]), text)
    return raised.sub(lambda m: _count("C", m[1], m[2]), text)


def _count(kind: str, total: str, chosen: str) -> str:
    binomial = rf"\binom{{{total}}}{{{chosen}}}"
    return binomial if kind == "C" else rf"({chosen}! {binomial})"
