#!/usr/bin/env python3
"""Tests of the comparison of tools/reproducible.py."""

import pathlib
import tempfile
import unittest

from reproducible import differences


class Differences(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.sides = [pathlib.Path(folder.name, name) for name in ("first", "second")]
        for side in self.sides:
            (side / "lib").mkdir(parents=True)
            (side / "lib" / "library.a").write_bytes(b"\0content")
            (side / "lib" / "link").symlink_to("library.a")

    def test_equal_folders(self):
        self.assertEqual(differences(*self.sides), [])

    def test_content(self):
        (self.sides[1] / "lib" / "library.a").write_bytes(b"\1content")
        self.assertEqual(differences(*self.sides), ["lib/library.a"])

    def test_targets_of_links(self):
        (self.sides[1] / "lib" / "link").unlink()
        (self.sides[1] / "lib" / "link").symlink_to("./library.a")
        self.assertEqual(differences(*self.sides), ["lib/link"])

    def test_files_of_one_side(self):
        for side, name in zip(self.sides, ("a", "b")):
            (side / name).touch()
        self.assertEqual(differences(*self.sides), ["a", "b"])


if __name__ == "__main__":
    unittest.main()
