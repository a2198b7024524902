"""The `doctor` command."""

from __future__ import annotations

import json

import pytest

from envbuild.cli import frame
from envbuild.host import doctor, gpu_sets, nvidia
from envbuild.host.nvidia import InstalledGpu

GB = 10**9


def card(index: int, name: str, capability: str, memory: int = 16) -> InstalledGpu:
    return InstalledGpu(
        index=index, uuid=f"GPU-{index}", name=name, capability=capability, memory_bytes=memory * GB, pci=str(index)
    )


V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(("status", "code", "ok"), [("missing", 6, False), ("warn", 0, True)])
def test_what_building_lacks_is_the_exit_code_too(monkeypatch, capsys, status, code, ok):
    found = [doctor.HostFinding(id="engine", status=status, title="engine", message="told")]
    monkeypatch.setattr(doctor, "doctor", lambda *_: found)
    assert frame.run(["doctor", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["findings"][0]["status"]) == (ok, status)


def test_doctor_says_what_fits_only_where_there_are_gpus(monkeypatch, capsys):
    fit = doctor.HostFinding(id="fits", status="ok", title="1 x A", message="told")
    monkeypatch.setattr(
        doctor, "doctor", lambda *_: [doctor.HostFinding(id="python", status="ok", title="Python", message="told")]
    )
    monkeypatch.setattr(nvidia, "driver", lambda: None)
    monkeypatch.setattr(gpu_sets, "judge_sets", lambda *_: [fit])
    for cards, ids in (((), ["python"]), ((card(0, V100, "7.0"),), ["python", "fits"])):
        monkeypatch.setattr(nvidia, "gpus", lambda cards=cards: cards)
        assert frame.run(["doctor", "--json"]) == 0
        assert [finding["id"] for finding in json.loads(capsys.readouterr().out)["findings"]] == ids
