"""`disentune list` names every plug-in and figure with what it is."""

import json


def test_list_frameworks_shows_name_line_and_paper(disentune):
    lines = disentune("list", "frameworks")[1].splitlines()
    place = next(number for number, line in enumerate(lines) if line.split()[:1] == ["beta_tc_vae"])
    assert "(beta - 1) * TC" in lines[place]
    assert lines[place + 1].strip() == "Chen et al., NeurIPS 2018, Eq. 4"
    assert lines[place + 2].strip() == "beta (required), estimator=mws, alpha=1.0, gamma=1.0"


def test_list_shows_every_plugin_with_a_line(disentune):
    code, out, _ = disentune("list")
    assert code == 0
    for name in ("xysquares", "conv64", "ada_gvae", "overlap", "dci"):
        line = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert len(line.split()) > 3
    kinds = {"datasets", "models", "frameworks", "recons", "metrics", "figures"}
    assert set(json.loads(disentune("list", "--json")[1])) == kinds


def test_list_figures_shows_what_each_is_and_its_keys(disentune):
    code, out, _ = disentune("list", "figures")
    assert code == 0
    line = next(line for line in out.splitlines() if line.split()[:1] == ["heat_map"])
    assert line.endswith("two swept keys. (title, only, metric, x, y)")
