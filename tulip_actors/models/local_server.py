"""The main of the local model server's process; started by `models.local`.

What may live here: the setting up of llama.cpp's own HTTP server, and the watch that ends this
process with the one that started it. Standard input is a pipe whose other end only the starter
holds; it is closed by the system however that process ends.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from pathlib import Path

_WATCH_INTERVAL_S = 0.5
_HTTP_THREADS = 32
_PROMPT_CACHE_MIB = 64


def main() -> None:
    """Serve until the starter closes its end of the pipe, or is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", type=Path, required=True, help="the model's file")
    parser.add_argument("--chat-template", type=Path, required=True)
    parser.add_argument("--alias", required=True, help="the model's name in requests")
    parser.add_argument("--n-parallel", type=int, required=True)
    parser.add_argument("--n-ctx", type=int, required=True)
    parser.add_argument("--starter-pid", type=int, required=True)
    parser.add_argument("--report-fd", type=int, required=True, help="where the address is told")
    options = parser.parse_args()

    watch = threading.Thread(target=_end_with_starter, args=(options.starter_pid,))
    watch.start()
    try:
        server, address = _serve(options)
        os.write(options.report_fd, f"{address}\n".encode())
        os.close(options.report_fd)
    except BaseException:
        # The watching thread would keep a process alive that has nothing to serve.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)
    watch.join()
    del server  # it serves for as long as it is held


def _end_with_starter(starter_pid: int) -> None:
    """End this process as soon as the starter has closed the pipe or is gone.

    The parent's pid is looked at too: a fork of the starter may have kept the pipe open.
    """
    while os.getppid() == starter_pid:
        readable, _, _ = select.select([sys.stdin], [], [], _WATCH_INTERVAL_S)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            break
    os._exit(0)  # there is nothing to save, and the server's own threads need no farewell


def _serve(options: argparse.Namespace) -> tuple[object, str]:
    """Start the server's threads; returns the server, which stops when dropped, and its address."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(options.gguf)
    params.model_alias = {options.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free one
    params.use_jinja = True
    params.chat_template = options.chat_template.read_text(encoding="utf-8")
    params.n_parallel = options.n_parallel
    params.n_ctx = options.n_ctx
    params.n_gpu_layers = 0
    # Two threads on a busy machine of two cores are thirty times slower than one.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # A kept-alive connection holds one of these threads; they only wait.
    params.n_threads_http = _HTTP_THREADS
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.ui = False
    server = xllamacpp.Server(params)
    return server, str(server.listening_address)


if __name__ == "__main__":
    main()
