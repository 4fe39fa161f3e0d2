"""Detect an unreachable Hugging Face hub."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit

UNREACHABLE = "it is not in the local cache, and the hub cannot be reached"


@cache
def hub_is_unreachable() -> bool:
    """Whether the name of the hub's host cannot be resolved. If so, huggingface_hub is set to offline mode, since it
    would repeat each request five times, each with a warning.

    Behind a proxy the name need not resolve, so the result is False.
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
