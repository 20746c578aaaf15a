"""`python -m benchmarks`: what it lists, and what it runs."""

from benchmarks.__main__ import find, main


def test_all_are_listed_with_one_line_each(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (_, text) in find().items():
        assert f"  {name:<14} {text}" in lines and text.endswith(".")
    assert {"time_to_rmse", "kills", "attack", "ranking", "serving", "scaling"} <= find().keys()


def test_a_name_that_is_not_there(capsys):
    assert main(["nowhere"]) == 2
    assert "unknown benchmark 'nowhere'" in capsys.readouterr().err


def test_a_benchmark_reports_bad_input_in_one_sentence(tmp_path, capsys):
    assert main(["kept_side", "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("kept_side: there is no data set")
