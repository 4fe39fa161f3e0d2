"""The Hugging Face hub, where it cannot be reached."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit

UNREACHABLE = "it is not in the local cache, and the hub cannot be reached"


@cache
def hub_is_unreachable() -> bool:
    """Whether the hub's host is unknown here. Its libraries are then told to use their caches only, since they would
    otherwise repeat every request five times, each with a warning.

    Behind a proxy the host need not be known, so nothing is assumed there.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        import huggingface_hub.constants

        huggingface_hub.constants.HF_HUB_OFFLINE = True
        return True
    return False
