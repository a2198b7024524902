"""Torch 7 for the smoke test: each rank starts a LuaJIT that trains, and tells it what to do.

Orders are lines of words on its standard input, one answer line each; arrays are raw float32 files, all parameters in one, in the
order of NAMES. Between backward pass and update the ranks average gradients over the smoke test's ring.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import shutil
import subprocess
import tempfile

import numpy as np

SHAPES = (('conv1_w', (16, 1, 5, 5)), ('conv1_b', (16,)), ('conv2_w', (32, 16, 5, 5)), ('conv2_b', (32,)),
          ('fc1_w', (128, 512)), ('fc1_b', (128,)), ('fc2_w', (10, 128)), ('fc2_b', (10,)))
LUAJIT = '/opt/torch/bin/luajit'
LUA = r'''
require 'torch'
require 'nn'
torch.setdefaulttensortype('torch.FloatTensor')
local device, threads = tonumber(arg[1]), tonumber(arg[2])
torch.setnumthreads(threads)
if device >= 0 then
  require 'cutorch'
  require 'cunn'
  cutorch.setDevice(device + 1)
end

local function place(object) return device >= 0 and object:cuda() or object end

local function read(path, ...)
  local file = torch.DiskFile(path, 'r'):binary()
  local size = 1
  for _, length in ipairs({...}) do size = size * length end
  local storage = file:readFloat(size)
  file:close()
  return torch.FloatTensor(storage):resize(...)
end

local function write(path, tensor)
  local file = torch.DiskFile(path, 'w'):binary()
  file:writeFloat(tensor:float():contiguous():storage())
  file:close()
end

local function network()
  local net = nn.Sequential()
  net:add(nn.SpatialConvolution(1, 16, 5, 5)):add(nn.ReLU()):add(nn.SpatialMaxPooling(2, 2, 2, 2))
  net:add(nn.SpatialConvolution(16, 32, 5, 5)):add(nn.ReLU()):add(nn.SpatialMaxPooling(2, 2, 2, 2))
  net:add(nn.Reshape(512, true)):add(nn.Linear(512, 128)):add(nn.ReLU()):add(nn.Linear(128, 10))
  return place(net)
end

local models = {}
local orders = {}

function orders.version()
  local found = pcall(require, 'torch') and (torch.version or '7.0') or '7.0'
  return tostring(found):gsub('%s', '')
end

function orders.make(name, path, momentum)
  local net = network()
  local weights, gradients = net:getParameters()
  weights:copy(read(path, weights:size(1)))
  models[name] = {net = net, loss = place(nn.CrossEntropyCriterion()), weights = weights, gradients = gradients,
                  past = weights:clone():zero(), momentum = tonumber(momentum)}
  return 'ok'
end

function orders.gradient(name, images, labels, count, out)
  local model, n = models[name], tonumber(count)
  local x, y = place(read(images, n, 1, 28, 28)), place(read(labels, n):add(1))
  model.net:zeroGradParameters()
  local answer = model.net:forward(x)
  local loss = model.loss:forward(answer, y)
  model.net:backward(x, model.loss:backward(answer, y))
  if out then write(out, model.gradients) end
  return string.format('%.9g', loss)
end

function orders.update(name, rate, path)
  local model = models[name]
  if path then model.gradients:copy(read(path, model.gradients:size(1))) end
  model.past:mul(model.momentum):add(tonumber(rate), model.gradients)
  model.weights:add(-1, model.past)
  return 'ok'
end

function orders.weights(name, out)
  write(out, models[name].weights)
  return 'ok'
end

function orders.predict(name, images, count, out)
  write(out, models[name].net:forward(place(read(images, tonumber(count), 1, 28, 28))))
  return 'ok'
end

for line in io.lines() do
  local words = {}
  for word in line:gmatch('%S+') do words[#words + 1] = word end
  local done, answer = pcall(orders[words[1]], unpack(words, 2))
  io.write('=', done and 'ok ' or 'error ', (tostring(answer):gsub('%s+', ' ')), '\n')
  io.flush()
end
'''


class Adapter(object):
    name = 'torch7'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64')

    def setup(self, ctx):
        self.ctx, self.on_gpu = ctx, ctx.kind == 'cuda'
        self.folder = tempfile.mkdtemp(prefix='envbuild-torch7-')
        self.count = 0
        self.semantics = {'gradient': 'mean', 'exchange': 'the smoke test\'s own ring, between backward pass and update',
                          'driven': 'by orders to a LuaJIT of each rank'}
        script = self.path('smoke.lua')
        with open(script, 'w') as stream:
            stream.write(LUA)
        device = ctx.devices[0] if self.on_gpu else -1
        self.process = subprocess.Popen(
            [LUAJIT, script, str(device), str(ctx.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            universal_newlines=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def ask(self, *words):
        """One order, one answer; lines that libraries print in between are passed over."""
        self.process.stdin.write(' '.join(str(word) for word in words) + '\n')
        self.process.stdin.flush()
        for line in iter(self.process.stdout.readline, ''):
            if line.startswith('=ok '):
                return line[4:].strip()
            if line.startswith('=error '):
                raise RuntimeError('Torch: ' + line[7:].strip())
        raise RuntimeError('LuaJIT ended with status %s' % self.process.wait())

    def versions(self):
        return {'name': 'torch7', 'version': self.ask('version'), 'cuda_build': None, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.count += 1
        handle = {'name': 'model%d' % self.count, 'shard': sync == 'mean' and self.ctx.world > 1}
        self.put_array('weights', np.concatenate([np.asarray(weights[name], 'float32').reshape(-1) for name, _ in SHAPES]))
        self.ask('make', handle['name'], self.path('weights'), repr(float(momentum)))
        return handle

    def put_array(self, name, array):
        np.ascontiguousarray(array, 'float32').tofile(self.path(name))

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return _scaled(images), labels

    def step(self, handle, batch, lr):
        self.put_array('images', batch[0])
        self.put_array('labels', batch[1])
        order = ['gradient', handle['name'], self.path('images'), self.path('labels'), len(batch[1])]
        if not handle['shard']:
            loss = float(self.ask(*order))
            self.ask('update', handle['name'], repr(float(lr)))
            return loss
        loss = float(self.ask(*(order + [self.path('gradients')])))
        mean = self.ctx.group.allreduce(np.fromfile(self.path('gradients'), 'float32')) / np.float32(self.ctx.world)
        self.put_array('gradients', mean)
        self.ask('update', handle['name'], repr(float(lr)), self.path('gradients'))
        return loss

    def loss(self, token):
        return token

    def drain(self):
        """A step ends when its update is answered."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        self.ask('weights', handle['name'], self.path('weights'))
        flat, out, at = np.fromfile(self.path('weights'), 'float32'), {}, 0
        for name, shape in SHAPES:
            size = int(np.prod(shape))
            out[name] = flat[at:at + size].reshape(shape)
            at += size
        return out

    def predict(self, handle, images):
        self.put_array('images', _scaled(images))
        self.ask('predict', handle['name'], self.path('images'), len(images), self.path('logits'))
        return np.fromfile(self.path('logits'), 'float32').reshape(-1, 10)

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def collective(self, op, array, root):
        """Those of the smoke test: nothing of Torch is between the ranks."""
        if op == 'allreduce':
            return self.ctx.group.allreduce(array)
        if op == 'broadcast':
            return self.ctx.group.broadcast_array(array, root)
        return self.ctx.group.gather_arrays(array)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _scaled(images):
    return images.astype('float32') / np.float32(255)
