"""The guard of this folder: no network, no Ray."""

from __future__ import annotations

import importlib
import socket
import sys

import pytest


def test_a_unit_test_cannot_connect_anywhere() -> None:
    with (
        socket.socket() as one,
        pytest.raises(AssertionError, match="must do without a network"),
    ):
        one.connect(("127.0.0.1", 9))


def test_a_unit_test_cannot_start_ray() -> None:
    if "ray" in sys.modules:
        with pytest.raises(AssertionError, match="move it to tests/runtime"):
            sys.modules["ray"].init()
    else:
        with pytest.raises(AssertionError, match="move it to tests/runtime"):
            importlib.import_module("ray")
