"""The client of package indexes."""

from envbuild.index.settings import read_settings


def test_threads_that_ask_at_once_read_the_configuration_once(monkeypatch):
    """Reading pip's configuration captures standard output.

    If two threads did that at the same time, standard output would stay captured.
    """
    import threading
    import time

    from envbuild.index import client

    read = []

    def slowly():
        read.append(threading.current_thread().name)
        time.sleep(0.05)
        return read_settings()

    monkeypatch.setattr(client, "read_settings", slowly)
    asked = client.Index()
    threads = [threading.Thread(target=lambda: asked.settings) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 1
