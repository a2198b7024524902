"""Torch 7 for the smoke test: each rank starts a LuaJIT that trains, and sends it commands.

A command is one line on LuaJIT's standard input, with tabs between words; LuaJIT answers with one line. Arrays are passed in
files of raw float32 numbers; all parameters are in one file, in the order of net.names. A network is a file with one line for
each layer. Commands name the batches on the device by numbers. Between backward pass and update, the ranks average the
gradients with the smoke test's ring.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import itertools
import mmap
import os
import re
import shutil
import signal
import subprocess
import tempfile

import numpy as np

from ..networks.nets import EPSILON, KEPT

SAVED = 'model.t7'
LUAJIT = '/opt/torch/bin/luajit'
CUDA_LIBRARY = '/opt/torch/lib/libTHC.so'       # of cutorch; a build without CUDA has none
LUA = r'''
jit.off()  -- where Torch asks for a garbage collection inside a compiled call to C, LuaJIT never finishes it
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
  file:writeFloat(tensor:float():clone():storage())  -- clone: a layer's own storage may be larger, from an earlier batch
  file:close()
end

-- Makes a layer from its words: op, name, inputs, channels in and out, kernel, stride, zeros, bias, height, width.
local parts = {}

function parts.conv(w)
  local part = nn.SpatialConvolution(w.into, w.out, w.kernel, w.kernel, w.stride, w.stride, w.zeros, w.zeros)
  return w.bias == 1 and part or part:noBias()
end

function parts.norm(w)  -- Torch calls the share of the new value in a running mean its momentum
  return nn.SpatialBatchNormalization(w.out, tonumber(arg[3]), 1 - tonumber(arg[4]))
end

function parts.relu() return nn.ReLU() end
function parts.tanh() return nn.Tanh() end
function parts.pool() return nn.SpatialMaxPooling(2, 2, 2, 2) end
function parts.average() return nn.SpatialAveragePooling(2, 2, 2, 2) end
function parts.mean(w) return nn.Sequential():add(nn.SpatialAveragePooling(w.width, w.height)):add(nn.Reshape(w.out, true)) end
function parts.flatten(w) return nn.Reshape(w.out, true) end
function parts.dense(w) return nn.Linear(w.into, w.out) end
function parts.add() return nn.CAddTable() end

-- All layers, in order. `all` contains them for operations on all parameters; it is never run itself.
local function network(path)
  local net = {layers = {}, all = nn.Sequential()}
  for line in io.lines(path) do
    local w, words = {of = {}}, {}
    for word in line:gmatch('%S+') do words[#words + 1] = word end
    for name in words[3]:gmatch('[^,]+') do w.of[#w.of + 1] = name end
    w.op, w.name = words[1], words[2]
    for number, key in ipairs({'into', 'out', 'kernel', 'stride', 'zeros', 'bias', 'height', 'width'}) do
      w[key] = tonumber(words[3 + number])
    end
    w.part = place(parts[w.op](w))
    net.all:add(w.part)
    net.layers[#net.layers + 1] = w
  end
  return net
end

local function reads(layer, known)
  if #layer.of == 1 then return known[layer.of[1]] end
  local read = {}
  for _, name in ipairs(layer.of) do read[#read + 1] = known[name] end
  return read
end

local function forward(net, images)
  local known = {images = images}
  for _, layer in ipairs(net.layers) do known[layer.name] = layer.part:forward(reads(layer, known)) end
  return known[net.layers[#net.layers].name], known
end

local function backward(net, known, flow)
  local flows = {[net.layers[#net.layers].name] = flow}
  for last = #net.layers, 1, -1 do
    local layer = net.layers[last]
    local back = layer.part:backward(reads(layer, known), flows[layer.name])
    if #layer.of == 1 then back = {back} end
    for number, name in ipairs(layer.of) do
      -- Add into a new tensor if two layers read the same input: a returned gradient is the layer's own memory.
      flows[name] = flows[name] and torch.add(flows[name], back[number]) or back[number]
    end
  end
end

-- Running means and variances, which are not parameters.
local function running(net)
  local found = {}
  for _, layer in ipairs(net.layers) do
    if layer.op == 'norm' then found[layer.name] = {mean = layer.part.running_mean, variance = layer.part.running_var} end
  end
  return found
end

local models, batches = {}, {}
local orders = {}

function orders.ready() return 'ok' end

function orders.make(name, layers, weights, momentum, channels, height, width)
  local net = network(layers)
  local flat, gradients = net.all:getParameters()
  flat:copy(read(weights, flat:size(1)))
  net.all:training()
  models[name] = {net = net, loss = place(nn.CrossEntropyCriterion()), weights = flat, gradients = gradients,
                  past = flat:clone():zero(), momentum = tonumber(momentum),
                  shape = {tonumber(channels), tonumber(height), tonumber(width)}}
  return 'ok'
end

function orders.put(number, name, images, labels, count)
  local n = tonumber(count)
  batches[number] = {images = place(read(images, n, unpack(models[name].shape))), labels = place(read(labels, n):add(1))}
  return 'ok'
end

function orders.gradient(name, number, out)
  local model, batch = models[name], batches[number]
  model.net.all:zeroGradParameters()
  local answer, known = forward(model.net, batch.images)
  local loss = model.loss:forward(answer, batch.labels)
  backward(model.net, known, model.loss:backward(answer, batch.labels))
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

function orders.assign(name, path)
  local weights = models[name].weights
  weights:copy(read(path, weights:size(1)))
  return 'ok'
end

function orders.predict(name, images, count, out)
  local model = models[name]
  model.net.all:evaluate()
  write(out, (forward(model.net, place(read(images, tonumber(count), unpack(model.shape))))))
  model.net.all:training()
  return 'ok'
end

function orders.save(name, path)
  local model = models[name]
  torch.save(path, {weights = model.weights, running = running(model.net)})
  return 'ok'
end

function orders.restore(name, path)
  local model, saved = models[name], torch.load(path)
  model.weights:copy(saved.weights)
  for layer, found in pairs(running(model.net)) do
    found.mean:copy(saved.running[layer].mean)
    found.variance:copy(saved.running[layer].variance)
  end
  return 'ok'
end

for line in io.lines() do
  local words = {}
  for word in line:gmatch('[^\t]+') do words[#words + 1] = word end
  local done, answer = pcall(orders[words[1]], unpack(words, 2))
  io.write('=', done and 'ok ' or 'error ', (tostring(answer):gsub('%s+', ' ')), '\n')
  io.flush()
end
'''


class Batch(object):
    """The number of a batch on the device. The number is reused after this object is garbage-collected."""

    def __init__(self, free, taken):
        self.number, self._free = free.pop() if free else next(taken), free

    def __del__(self):
        self._free.append(self.number)


class Adapter(object):
    name = 'torch7'
    style = 'process'

    def setup(self, ctx):
        self.ctx, self.on_gpu = ctx, ctx.kind == 'cuda'
        self.folder = tempfile.mkdtemp(prefix='torch7-', dir=ctx.folder)
        self.count, self.free, self.taken = 0, [], itertools.count(1)
        self.semantics = {'gradient': 'mean', 'exchange': 'the smoke test\'s own ring, between backward pass and update',
                          'driven': 'by orders to a LuaJIT of each rank'}
        script = self.path('smoke.lua')
        with open(script, 'w') as stream:
            stream.write(LUA)
        device = ctx.devices[0] if self.on_gpu else -1
        self.process = subprocess.Popen(
            [LUAJIT, script, str(device), str(ctx.threads), repr(EPSILON), repr(KEPT)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, universal_newlines=True, preexec_fn=_keep_on_when_asked_for_stacks)
        self.ask('ready')           # wait until Torch is loaded; if it fails, standard error says why

    def path(self, name):
        return os.path.join(self.folder, name)

    def ask(self, *words):
        """Send one command and return its answer; lines that libraries print in between are ignored."""
        try:
            self.process.stdin.write('\t'.join(str(word) for word in words) + '\n')
            self.process.stdin.flush()
        except (IOError, OSError):
            pass                    # LuaJIT has ended: read its last output, if there is any
        for line in iter(self.process.stdout.readline, ''):
            if line.startswith('=ok '):
                return line[4:].strip()
            if line.startswith('=error '):
                raise RuntimeError('Torch: ' + line[7:].strip())
        status = self.process.wait()
        raise RuntimeError('LuaJIT was killed by signal %d' % -status if status < 0 else 'LuaJIT ended with status %d' % status)

    def versions(self):
        """Return the version 7.0: Torch 7 never had releases with numbers."""
        return {'name': 'torch7', 'version': '7.0', 'cuda_build': _built_with(), 'cudnn': None, 'nccl': None,
                'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.count += 1
        handle = {'name': 'model%d' % self.count, 'net': net, 'shard': sync == 'mean' and self.ctx.world > 1}
        with open(self.path('layers'), 'w') as stream:
            stream.writelines(_words(net, layer) + '\n' for layer in net.layers)
        self._put_weights(net, weights)
        self.ask('make', handle['name'], self.path('layers'), self.path('weights'), repr(float(momentum)), *net.shape)
        return handle

    def _put_weights(self, net, weights):
        self.put_array('weights', np.concatenate([np.asarray(weights[name], 'float32').reshape(-1) for name in net.names]))

    def put_array(self, name, array):
        np.ascontiguousarray(array, 'float32').tofile(self.path(name))

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        self.put_array('images', _scaled(images))
        self.put_array('labels', labels)
        batch = Batch(self.free, self.taken)
        self.ask('put', batch.number, handle['name'], self.path('images'), self.path('labels'), len(labels))
        return batch

    def step(self, handle, batch, lr):
        order = ['gradient', handle['name'], batch.number]
        if not handle['shard']:
            loss = float(self.ask(*order))
            self.ask('update', handle['name'], repr(float(lr)))
            return loss
        loss = float(self.ask(*(order + [self.path('gradients')])))
        mean, = self.ctx.group.means([np.fromfile(self.path('gradients'), 'float32')])
        self.put_array('gradients', mean)
        self.ask('update', handle['name'], repr(float(lr)), self.path('gradients'))
        return loss

    def loss(self, token):
        return token

    def drain(self):
        """Do nothing: a step returns only after LuaJIT has confirmed the update."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        self.ask('weights', handle['name'], self.path('weights'))
        flat, out, at = np.fromfile(self.path('weights'), 'float32'), {}, 0
        for name, shape in handle['net'].parameters:
            size = int(np.prod(shape))
            out[name] = flat[at:at + size].reshape(shape)
            at += size
        return out

    def assign(self, handle, copy, weights):
        self._put_weights(handle['net'], weights)
        self.ask('assign', handle['name'], self.path('weights'))

    def predict(self, handle, images):
        self.put_array('images', _scaled(images))
        self.ask('predict', handle['name'], self.path('images'), len(images), self.path('logits'))
        return np.fromfile(self.path('logits'), 'float32').reshape(-1, 10)

    def save(self, handle, folder):
        self.ask('save', handle['name'], os.path.join(folder, SAVED))

    def restore(self, handle, folder):
        self.ask('restore', handle['name'], os.path.join(folder, SAVED))

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _keep_on_when_asked_for_stacks():
    """Make LuaJIT ignore the signal by which ranks print their stacks.

    Otherwise the signal would end LuaJIT, and its end would be reported as the cause of the failure.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _built_with():
    """Return the CUDA version in the names of the CUDA libraries with which cutorch is linked; None for a CPU build.

    The file is read because cutorch can be loaded only on a machine with a driver.
    """
    if not os.path.isfile(CUDA_LIBRARY):
        return None
    with open(CUDA_LIBRARY, 'rb') as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            found = re.search(br'\0libcu(?:dart|blas)\.so\.(\d+\.\d+)\0', content)
            return found.group(1).decode('ascii') if found else 'unknown'
        finally:
            content.close()


def _words(net, layer):
    """Return a layer in the form that the script reads; numbers that do not apply are 0."""
    shapes = dict(net.parameters)
    into = shapes[layer.name + '_w'][1] if layer.op in ('conv', 'dense') else 0
    height, width = next(other.shape for other in net.layers if other.name == layer.of[0])[1:] if layer.op == 'mean' else (0, 0)
    numbers = (into, layer.shape[0], layer.kernel or 0, layer.stride, layer.pad, int(layer.bias), height, width)
    return ' '.join([layer.op, layer.name, ','.join(layer.of)] + ['%d' % number for number in numbers])


def _scaled(images):
    return images.astype('float32') / np.float32(255)
