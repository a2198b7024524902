"""The merged files of layers."""

from __future__ import annotations

from linked_trees import elf, layer

from envbuild.linkcheck.tree import Tree


def test_links_are_followed_in_folders_and_at_the_end():
    tree = Tree([layer({"/usr/lib/real.so.1.2": elf()}, {"/lib": "usr/lib", "/usr/lib/real.so.1": "real.so.1.2"})])
    assert tree.real("/lib/real.so.1") == "/usr/lib/real.so.1.2"
    assert tree.real("/lib/absent.so") is None


def test_doubled_slashes_in_links_are_one():
    tree = Tree([layer({"/usr/lib/a.so": elf()}, {"/lib": "//usr/lib", "/b.so": "//lib//a.so"})])
    assert tree.real("/b.so") == tree.real("/lib/a.so") == "/usr/lib/a.so"


def test_a_circle_of_links_leads_nowhere():
    tree = Tree([layer(None, {"/a": "b", "/b": "a", "/c": "c/d"})])
    assert tree.real("/a") is None and tree.real("/c/x") is None


def test_a_path_may_have_very_many_folders():
    deep = "/deep" + "/d" * 3000
    tree = Tree([layer({f"{deep}/a.so": elf()}, {"/short": deep})])
    assert tree.real(f"{deep}/a.so") == tree.real("/short/a.so") == f"{deep}/a.so"
    circle = Tree([layer({"/x/a.so": elf()}, {"/x/back": "/x"})])
    assert circle.real("/x" + "/back" * 3000 + "/a.so") == "/x/a.so"


def test_a_relative_path_leads_nowhere_and_two_slashes_count_as_one():
    tree = Tree([layer({"/usr/lib/a.so": elf()}, {"/lib": "//usr/lib"}, folders=["/usr/lib"])])
    assert tree.real("usr/lib/a.so") is None and tree.real("") is None and tree.folder("lib") is None
    assert tree.real("//lib/a.so") == "/usr/lib/a.so" and tree.folder("//lib") == "/usr/lib"


def test_whiteouts_and_opaque_folders_hide_lower_layers():
    lower = layer({"/x/a.so": elf(), "/y/b.so": elf(), "/y/deep/c.so": elf(), "/z.so": elf()}, folders=["/x", "/y"])
    tree = Tree([lower, layer({"/y/new.so": elf()}, removed=["/z.so", "/x"], opaque=["/y"])])
    assert [path for path, _ in tree.objects()] == ["/y/new.so"]


def test_a_higher_file_that_is_no_library_hides_one():
    tree = Tree([layer({"/a.so": elf("a.so")}), layer(files=["/a.so"])])
    assert tree.real("/a.so") == "/a.so" and tree.facts("/a.so") is None


def test_a_link_replaces_a_folder_with_all_in_it_and_a_folder_a_link():
    tree = Tree([layer({"/d/a.so": elf()}, folders=["/d"]), layer(None, {"/d": "e"})])
    assert tree.real("/d/a.so") is None
    again = Tree([layer(None, {"/d": "e"}), layer({"/d/a.so": elf()}, folders=["/d"])])
    assert again.real("/d/a.so") == "/d/a.so"


def test_a_file_replaces_a_folder_with_all_in_it():
    for folders in (["/d"], []):  # some tools write no entries for folders
        for higher in (layer(files=["/d"]), layer(None, {"/d": "e"})):
            tree = Tree([layer({"/d/deep/a.so": elf()}, folders=folders), higher])
            assert tree.real("/d/deep/a.so") is None and list(tree.objects()) == []


def test_the_parent_of_a_linked_folder_is_the_parent_of_its_target():
    objects = {"/cuda-12/x/lib/a.so": elf(), "/cuda-12/x/own/b.so": elf(), "/cuda-12/own/c.so": elf()}
    tree = Tree([layer(objects, {"/cuda-12/lib64": "x/lib", "/l.so": "cuda-12/lib64/../own/b.so"})])
    assert tree.real("/cuda-12/lib64/../own/b.so") == tree.real("/l.so") == "/cuda-12/x/own/b.so"
    assert tree.real("/cuda-12/lib64/../own/c.so") is None
    assert tree.real("/cuda-12/absent/../own/c.so") is None and tree.real("/../cuda-12/own/./c.so") == "/cuda-12/own/c.so"


def test_a_link_that_names_itself_many_times_takes_no_time():
    links = {f"/l{number}": f"l{number + 1}/l{number + 1}" for number in range(30)}
    assert Tree([layer(None, links)]).real("/l0/a.so") is None
