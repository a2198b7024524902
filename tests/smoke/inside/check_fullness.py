"""Which disk is full, from what ranks printed and from what the kernel says about the folder of their files."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
from envbuild_smoke import files
from envbuild_smoke.launching import fullness


class Sentences(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def of(self, *texts):
        return fullness.sentence(self.folder, texts)

    def test_without_a_sign_nothing_is_said(self):
        self.assertEqual(self.of(), '')
        self.assertEqual(self.of('ValueError: 3 images', u'RuntimeError: out of memory', ''), '')

    def test_the_words_of_python_and_of_numpy(self):
        for text in ('OSError: [Errno 28] No space left on device', u'OSError: 21168 requested and 8192 written', 'x\nDisk quota exceeded\n'):
            said = self.of('', text)
            self.assertTrue(said.startswith('a file did not fit into the folder %s: ' % self.folder), said)
            self.assertTrue(said.endswith(' MB are free now'), said)

    def test_the_folder_of_the_file_that_an_error_names(self):
        said = "OSError: [Errno 28] No space left on device: '%s'"
        self.assertIn('a file did not fit into the folder /dev: ', self.of(said % '/dev/full'))
        self.assertIn('a file did not fit into the folder /dev: ', self.of(said.replace(": '", ": u'") % '/dev/full'))
        self.assertIn('a file did not fit into the folder %s: ' % self.folder, self.of(said % os.path.join(self.folder, '2', 'result-0.json')))
        self.assertEqual(self.of(said % '/nowhere/file'), 'a file did not fit into the folder /nowhere')

    def test_room(self):
        self.assertTrue(files.room(self.folder).endswith('MB are free'), files.room(self.folder))
        self.assertEqual(files.room('/nowhere'), '')


if __name__ == '__main__':
    unittest.main()
