"""Result pages with several sections."""

import os


def test_a_new_piece_replaces_its_own_and_no_other(benchmark, tmp_path):
    page = tmp_path / "page.md"
    keep = benchmark("pages").keep
    keep(page, ["## One", "", "1", ""], title="Results")
    keep(page, ["## Two", "", "2", "", "### Of it", "", "3"], title="Results")
    keep(page, ["## One", "", "4", ""], title="Another")
    assert page.read_text() == "# Results\n\n## One\n\n4\n\n## Two\n\n2\n\n### Of it\n\n3\n"


def test_what_stands_before_the_first_piece_stays(benchmark, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Results\n\nRead this first.\n\n## One\n\n1\n")
    benchmark("pages").keep(page, ["## One", "", "2"], title="Results")
    assert page.read_text() == "# Results\n\nRead this first.\n\n## One\n\n2\n"


def test_the_date_is_that_of_the_measurement_and_not_of_the_page(benchmark, tmp_path):
    measured = benchmark("pages").measured
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text('{"value": 1, "measured": "2020-02-01"}\n')
    new.write_text('{"value": 1, "measured": "2020-03-04"}\n')
    assert measured([old]) == "2020-02-01"
    assert measured([old, new]) == "2020-02-01 to 2020-03-04"
    old.write_text('{"value": 1}\n')  # written by an older version
    os.utime(old, (86_400 * 365, 86_400 * 365))
    assert measured([old]) == "1971-01-01"
