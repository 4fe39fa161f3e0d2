"""Names on the hub without a connection: one error message, no retries."""

import socket

import pytest

from principal_attention.errors import InputError
from principal_attention.plumbing import hub


@pytest.fixture
def offline(monkeypatch):
    """A machine that resolves no host name; any attempt to connect fails the test."""
    import huggingface_hub.constants

    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    def connect(*_):
        raise AssertionError("a connection was tried")

    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub.hub_is_unreachable.cache_clear()
    yield
    hub.hub_is_unreachable.cache_clear()


@pytest.mark.parametrize("model", ["hf:nobody/nothing", "timm:deit_tiny_patch16_224"])
def test_an_unreachable_hub_is_said_in_one_sentence(model, offline, capfd, tmp_path, monkeypatch):
    from principal_attention.vision.models.load import load_classifier

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="the hub cannot be reached"):
        load_classifier(model)
    assert capfd.readouterr().err == ""


def test_data_of_an_unreachable_hub(offline):
    from principal_attention.data.tables import from_hub

    with pytest.raises(InputError, match=r"nobody/nothing cannot be opened: .*the hub cannot be reached"):
        from_hub("nobody/nothing")


def test_behind_a_proxy_nothing_is_assumed(offline, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    hub.hub_is_unreachable.cache_clear()
    assert not hub.hub_is_unreachable()
