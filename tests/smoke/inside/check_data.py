from __future__ import absolute_import, division, print_function

import io
import os
import pickle
import shutil
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np
import write_data
from envbuild_smoke import plan
from envbuild_smoke.datasets import data, datafiles, shapes, synth, workloads
from envbuild_smoke.judging import checks
from envbuild_smoke.networks import nets

FORMS = (('mnist', 'raw'), ('mnist', 'gz'), ('mnist', 'npz'), ('cifar10', 'bin'), ('cifar10', 'py'), ('cifar10', 'bin.tar'), ('cifar10', 'py.tar'))


def options(**changes):
    return dict({'workload': 'auto', 'net': [], 'data': '', 'epochs': 0, 'train_images': 50, 'test_images': 20, 'batch': 0, 'seed': 7,
                 'phases': ['train'], 'devices': 'all', 'device': 'auto', 'allow_cpu': False}, **changes)


def part(name='mnist', **changes):
    opts = options(**changes)
    return workloads.Part(workloads.WORKLOADS[name], nets.of(workloads.network(name, opts['net'])), opts, 'cpu')


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.digits, self.shapes = [[make(n, seed) for n, seed in ((40, 1), (10, 2))] for make in (synth.digits, shapes.shapes)]

    def tearDown(self):
        os.environ.pop('ENVBUILD_SMOKE_DATASETS', None)
        shutil.rmtree(self.folder)

    def write(self, dataset, form):
        """Make a folder with the files in one format, and the table with their checksums."""
        folder = os.path.join(self.folder, form)
        os.mkdir(folder)
        if dataset == 'mnist':
            write_data.mnist(folder, form, *self.digits)
        else:
            write_data.cifar(folder, form, *self.shapes)
        os.environ['ENVBUILD_SMOKE_DATASETS'] = write_data.table(folder)
        return folder

    def damaged(self, folder, dataset, words):
        with self.assertRaises(datafiles.Damaged) as caught:
            datafiles.load(folder, dataset)
        self.assertIn(words, str(caught.exception))

    def test_every_form_gives_the_same_images(self):
        for dataset, form in FORMS:
            train, test, verified = datafiles.load(self.write(dataset, form), dataset)
            wanted = self.digits if dataset == 'mnist' else self.shapes
            if dataset == 'cifar10':
                wanted = [[np.concatenate([each[k::5] for k in range(5)]) for each in wanted[0]], wanted[1]]
            for got, want in zip(train + test, list(wanted[0]) + list(wanted[1])):
                self.assertTrue((got == want).all(), (dataset, form))
            self.assertTrue(all('sha256' in each or 'md5' in each for each in verified))

    def test_one_wrong_byte_is_found(self):
        for dataset, form in FORMS:
            folder = self.write(dataset, form)
            path = os.path.join(folder, sorted(os.listdir(folder))[-1])
            with io.open(path, 'r+b') as stream:
                stream.seek(os.path.getsize(path) // 2)
                byte = bytearray(stream.read(1))
                stream.seek(-1, os.SEEK_CUR)
                stream.write(bytearray([byte[0] ^ 1]))
            self.damaged(folder, dataset, 'it is damaged, or another file')

    def test_a_file_that_was_cut_off_is_found(self):
        for dataset, form in FORMS:
            folder = self.write(dataset, form)
            path = os.path.join(folder, sorted(os.listdir(folder))[0])
            with io.open(path, 'r+b') as stream:
                stream.truncate(os.path.getsize(path) - 1)
            self.damaged(folder, dataset, 'it is incomplete')

    def test_a_missing_one_is_named_and_none_at_all_is_another_matter(self):
        folder = self.write('mnist', 'gz')
        os.unlink(os.path.join(folder, 't10k-labels-idx1-ubyte.gz'))
        self.damaged(folder, 'mnist', 'but t10k-labels-idx1-ubyte, which must be in the same folder, does not')
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        for place in (folder, os.path.join(folder, 'nowhere')):
            self.assertRaises(datafiles.Absent, datafiles.load, place, 'mnist')

    def test_a_batch_may_only_hold_arrays(self):
        folder = self.write('cifar10', 'py')
        with io.open(os.path.join(folder, 'test_batch'), 'wb') as stream:
            stream.write(pickle.dumps({b'data': os.path.join, b'labels': []}, 2))
        os.environ['ENVBUILD_SMOKE_DATASETS'] = write_data.table(folder)
        self.damaged(folder, 'cifar10', 'a batch file has no')

    def test_what_is_no_such_file_is_damaged_though_its_checksum_is_right(self):
        for dataset, form, name in (('mnist', 'raw', 'train-images-idx3-ubyte'), ('cifar10', 'bin', 'data_batch_3.bin'),
                                    ('cifar10', 'bin.tar', 'cifar-10-binary.tar.gz'), ('mnist', 'npz', 'mnist.npz')):
            folder = self.write(dataset, form)
            with io.open(os.path.join(folder, name), 'wb') as stream:
                stream.write(b'neither fish nor flesh')
            os.environ['ENVBUILD_SMOKE_DATASETS'] = write_data.table(folder)
            self.damaged(folder, dataset, 'cannot read')

    def prepared(self, **changes):
        opts = options(**changes)
        return data.Prepared(opts, [part(**changes)], self.folder, 0, 1)

    def test_a_subset_is_the_same_for_every_seed(self):
        folder = self.write('mnist', 'gz')
        one, other = (self.prepared(data=folder, train_images=10, seed=seed).entries[0] for seed in (1, 2))
        self.assertEqual(one['sha256'], other['sha256'])
        self.assertEqual((one['name'], one['source'], one['n_train'], one['n_test']), ('MNIST', folder, 10, 10))
        self.assertEqual(self.prepared(data=folder, train_images=99).entries[0]['n_train'], 40)

    def test_generated_images_never_take_the_place_of_damaged_ones(self):
        folder = self.write('mnist', 'gz')
        with io.open(os.path.join(folder, 't10k-labels-idx1-ubyte.gz'), 'ab') as stream:
            stream.write(b'x')
        for workload in ('auto', 'mnist'):
            with self.assertRaises(data.Unusable) as caught:
                self.prepared(data=folder, workload=workload)
            self.assertEqual((caught.exception.made['id'], caught.exception.made['status']), ('DATA', 'fail'))
            self.assertIn('envbuild data fetch mnist', caught.exception.made['next_step'])

    def test_files_that_are_not_there_fail_where_they_were_asked_for(self):
        folder = self.write('cifar10', 'bin')
        self.assertRaises(data.Unusable, self.prepared, data=folder, workload='mnist')
        made = self.prepared(data=folder)
        self.assertEqual([(check['id'], check['status']) for check in made.checks], [('DATA', 'skip')])
        self.assertEqual(made.entries[0]['source'], 'generated')

    def test_a_folder_without_any_data_set_fails(self):
        """A misspelt name must not lead to generated images."""
        for place in (os.path.join(self.folder, 'tpyo'), self.folder):
            with self.assertRaises(data.Unusable) as caught:
                self.prepared(data=place, workload='auto')
            self.assertEqual((caught.exception.made['id'], caught.exception.made['status']), ('DATA', 'fail'))


class Choices(unittest.TestCase):
    def test_a_limit_is_that_of_data_network_and_length(self):
        mine = part()
        self.assertEqual(mine.limit(synth.NAME, 2 * 8192, 8192, None), {'accuracy': .97, 'loss': .25, 'note': ''})
        self.assertEqual(mine.limit('MNIST', 10 ** 6, 8192, None)['accuracy'], workloads.BEATS_GUESSING)
        short = dict(mine.limit(synth.NAME, 100, 8192, None), outputs=2e-5)
        self.assertEqual((short['accuracy'], short['loss']), (None, None))
        learned = {'loss_first': 2.0, 'loss_last': 2.1, 'accuracy': .1, 'test_n': 64, 'finite': True, 'outputs_apart': 1e-6}
        self.assertEqual([check['status'] for check in checks.learning(1, learned, short)], ['skip', 'skip'])
        self.assertEqual([check['status'] for check in checks.learning(1, learned, dict(mine.limit('MNIST', 8192, 8192, None), outputs=2e-5))], ['fail', 'fail'])
        _, wrong = checks.learning(1, dict(learned, outputs_apart=.1), short)
        self.assertEqual((wrong['id'], wrong['status'], wrong['value']), ('ACC', 'fail', .1))
        self.assertIn('the outputs for test images differ from those of NumPy with the same weights by 1.0e-01', wrong['message'])
        self.assertIn('no accuracy limit was measured', mine.limit('MNIST', 10 ** 6, 8192, None)['note'])
        self.assertEqual(mine.limit('MNIST', 10 ** 6, 8192, .99), {'accuracy': .99, 'loss': 1.0, 'note': ''})

    def test_an_accuracy_that_was_measured_with_more_different_images_is_not_required(self):
        mine = part()
        few = mine.limit(synth.NAME, 60 * 640, 640, None)
        self.assertEqual((few['accuracy'], few['loss']), (None, None))
        self.assertIn('trained on only 640 different images', few['note'])
        self.assertEqual(mine.limit(synth.NAME, 60 * 640, 640, .9)['accuracy'], .9)
        self.assertEqual(mine.limit('MNIST', 60 * 640, 640, None)['accuracy'], workloads.BEATS_GUESSING)

    def names(self, kind='cpu', **changes):
        return workloads.names(options(**changes), kind)

    def test_workloads(self):
        self.assertEqual(self.names(), ['mnist'])
        self.assertEqual(self.names('cuda'), ['mnist', 'cifar'])
        self.assertEqual(self.names(net=['vgg19_bn']), ['cifar'])
        self.assertEqual(self.names(workload='cifar,mnist'), ['mnist', 'cifar'])

    def test_a_network_of_another_workload_is_refused(self):
        with self.assertRaises(plan.Refusal):
            plan.parts(options(workload='mnist', net=['resnet20']), plan.Device('cpu', 2, ''), object)

    def test_what_an_adapter_cannot_build_is_left_out_with_its_reason(self):
        class Adapter(object):
            without = {'resnet20': 'it has no shortcuts'}
        for changes, kind, left, want in (({}, 'cuda', ['mnist'], 'skip'), ({'workload': 'cifar'}, 'cpu', [], 'inconclusive')):
            parts, made = plan.parts(options(**changes), plan.Device(kind, 2, ''), Adapter)
            self.assertEqual(([each.name for each in parts], [check['status'] for check in made]), (left, [want]))
            self.assertIn('no shortcuts', made[0]['message'])

    def test_as_many_workers_as_processor_and_memory_can_hold(self):
        host = {'cores_usable': 4, 'mem_available_bytes': 64 * 10 ** 9, 'mem_limit_free_bytes': None}
        for workers, changes in ((1, {}), (32, {}), (16, {'cores_usable': 1}), (1, {'mem_available_bytes': 0}), (10, {'mem_limit_free_bytes': 3 * 10 ** 8})):
            plan.refuse_too_many(workers, dict(host, **changes))
        for workers, changes, words in ((33, {}, 'for 4 cores: with more than 32 workers'), (17, {'cores_usable': 1}, 'for 1 core: with more than 16 workers'),
                                        (11, {'mem_limit_free_bytes': 3 * 10 ** 8}, '300 MB are free. Choose --counts of at most 10')):
            with self.assertRaises(plan.Refusal) as caught:
                plan.refuse_too_many(workers, dict(host, **changes))
            self.assertIn(words, str(caught.exception))

    def test_devices_by_number_and_by_uuid(self):
        gpus = [{'index': k, 'uuid': 'GPU-%d%d-x' % (k, k)} for k in range(4)]
        self.assertEqual(plan.chosen_devices('all', gpus), [0, 1, 2, 3])
        self.assertEqual(plan.chosen_devices('2,0', gpus), [2, 0])
        self.assertEqual(plan.chosen_devices('GPU-33,1', gpus), [3, 1])
        self.assertEqual(plan.chosen_devices('1,1', gpus), [1, 1])      # two ranks share GPU 1
        for wrong in ('4', 'GPU-', '1,4', 'GPU-9', 'x', ''):
            self.assertRaises(plan.Refusal, plan.chosen_devices, wrong, gpus)


if __name__ == '__main__':
    unittest.main()
