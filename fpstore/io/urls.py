"""URLs that name the same page, as one spelling."""

from __future__ import annotations

from fpstore.io.packages import import_package

#: Query parameters that say how a visitor came to a page, in lower case; a name that ends with
#: ``*`` stands for all that begin so. They are of campaigns (Matomo, HubSpot, Vero, Omeda, Adobe),
#: clicks on advertisements (Google, Microsoft, Meta, X, TikTok, LinkedIn, Yandex, Reddit,
#: Pinterest, Snapchat), and mailings (Mailchimp, Drip, Marketo).
TRACKING_PARAMETERS = (
    "__hsfp",
    "__hssc",
    "__hstc",
    "__s",
    "_ga",
    "_gl",
    "_hsenc",
    "_hsmi",
    "dclid",
    "epik",
    "fbclid",
    "gad_source",
    "gbraid",
    "gclid",
    "gclsrc",
    "hsctatracking",
    "igsh",
    "igshid",
    "li_fat_id",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "msclkid",
    "mtm_*",
    "oly_anon_id",
    "oly_enc_id",
    "piwik_*",
    "pk_*",
    "rdt_cid",
    "s_cid",
    "sccid",
    "srsltid",
    "ttclid",
    "twclid",
    "utm_*",
    "vero_conv",
    "vero_id",
    "wbraid",
    "yclid",
    "ymclid",
)
_NAMES = frozenset(name for name in TRACKING_PARAMETERS if not name.endswith("*"))
_PREFIXES = tuple(name[:-1] for name in TRACKING_PARAMETERS if name.endswith("*"))
SCHEMES = ("http://", "https://")
_PURPOSE = "keys that are URLs"


def is_url(text: str) -> bool:
    """Return whether a text begins as an absolute URL of the web does."""
    return text[:8].lower().startswith(SCHEMES)


def canonical_url(url: str) -> str:
    """Return one spelling of the URLs of a page.

    The scheme and the host are in lower case, the host in ASCII. A default port, ``.`` and ``..``
    in the path, the fragment, empty parameters and `TRACKING_PARAMETERS` are left out. Parameters
    are ordered by their names; those of one name keep their order. The scheme, ``www.`` and a slash
    at the end stay, since servers may answer differently. A text that is no URL is returned as it
    is.

    Raises
    ------
    MissingExtraError
        The package ada-url is not installed.

    Notes
    -----
    The parser is Ada, of the URL Standard (https://url.spec.whatwg.org): Y. Nizipli, D. Lemire,
    *Parsing millions of URLs per second*, Software: Practice and Experience 54(5), 2024. The steps
    are those of RFC 3986, section 6.2.2.1, 6.2.2.3 and 6.2.3.

    Examples
    --------
    >>> canonical_url("HTTP://Example.com:80/a/../b?y=2&utm_source=feed&x=1#top")
    'http://example.com/b?x=1&y=2'
    """
    ada_url = import_package("ada_url", _PURPOSE)
    try:
        page, _, _ = str(ada_url.normalize_url(url)).partition("#")
    except ValueError:  # no URL, or a lone surrogate
        return url
    path, _, query = page.partition("?")
    parameters = sorted(filter(_is_kept, query.split("&")), key=_name)
    return f"{path}?{'&'.join(parameters)}" if parameters else path


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]


def _is_kept(parameter: str) -> bool:
    name = _name(parameter).lower()
    return bool(parameter) and name not in _NAMES and not name.startswith(_PREFIXES)
