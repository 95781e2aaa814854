"""Hide the secrets of URLs in messages, malformed URLs included."""

from __future__ import annotations

import re

# Parameters of drivers and services: password=…, sslpassword=…, api_key=…, token=…. A value ends where the next begins.
_SECRET_OPTION = re.compile(r"(?i)(\w*pass\w*|pwd|\w*secret|\w*token|\w*key)(\s*=).*?(?=[&;]\w+=|\s+\w+\s*=|$)")
_OWN_FILES = ("sqlite", "file", "reference")


def hide_secrets(url: str) -> str:
    """Return the URL without password and secret options, for messages. A path is returned unchanged.

    Whatever stands between the first colon and the last @ is taken for a password: an unescaped / or # belongs to it.
    """
    scheme, found, rest = url.partition("://")
    if scheme in _OWN_FILES:
        return url
    if not found:
        return _SECRET_OPTION.sub(r"\1\2…", url) if "=" in url else url
    who, at, where = _SECRET_OPTION.sub(r"\1\2…", rest).rpartition("@")
    return f"{scheme}://{re.split('[:/?#]', who, maxsplit=1)[0]}{at}{where}"
