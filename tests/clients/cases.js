// Runs the backend cases of the onnx package through onnxruntime-node, and prints a line for each: what became of it, and its name.
//
// node cases.js PACKAGE CASES: PACKAGE is the directory of onnxruntime-node, CASES that of the cases.
"use strict";

const fs = require("fs");
const path = require("path");

const [, , modulePath, cases] = process.argv;
const ort = require(path.resolve(modulePath));

/** Reads the fields of a protobuf message: number, kind and content of each. */
function* fields(bytes) {
  let place = 0;
  const varint = () => {
    let number = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[place++];
      number |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
  };
  while (place < bytes.length) {
    const tag = Number(varint());
    const [field, kind] = [tag >> 3, tag & 7];
    if (kind === 0) {
      yield { field, number: varint() };
      continue;
    }
    const length = kind === 2 ? Number(varint()) : kind === 5 ? 4 : 8;
    yield { field, bytes: bytes.subarray(place, place + length) };
    place += length;
  }
}

/** Element types that the client has, by their number in ONNX. */
const TYPES = {
  1: ["float32", Float32Array],
  2: ["uint8", Uint8Array],
  3: ["int8", Int8Array],
  4: ["uint16", Uint16Array],
  5: ["int16", Int16Array],
  6: ["int32", Int32Array],
  7: ["int64", BigInt64Array],
  8: ["string", Array],
  9: ["bool", Uint8Array],
  11: ["float64", Float64Array],
  12: ["uint32", Uint32Array],
  13: ["uint64", BigUint64Array],
};

class Unknown extends Error {}

/** Reads a tensor of a file. */
function readTensor(file) {
  const dims = [];
  const strings = [];
  let [type, name, raw] = [0, "", new Uint8Array(0)];
  for (const { field, number, bytes } of fields(fs.readFileSync(file))) {
    if (field === 1 && number !== undefined) dims.push(Number(number));
    else if (field === 1) for (let at = 0; at < bytes.length; ) {
      let [value, shift] = [0, 1];
      for (; bytes[at] >= 0x80; at++, shift *= 128) value += (bytes[at] & 0x7f) * shift;
      value += bytes[at++] * shift;
      dims.push(value);
    }
    else if (field === 2 && number !== undefined) type = Number(number);
    else if (field === 6) strings.push(Buffer.from(bytes).toString());
    else if (field === 8) name = Buffer.from(bytes).toString();
    else if (field === 9) raw = bytes;
    else if ([4, 5, 7, 10, 11].includes(field)) throw new Unknown("typed values");
  }
  if (!(type in TYPES)) throw new Unknown(`element type ${type}`);
  const [label, array] = TYPES[type];
  if (type === 8) return { name, tensor: new ort.Tensor(label, strings, dims) };
  const copy = new Uint8Array(raw).buffer;
  return { name, tensor: new ort.Tensor(label, new array(copy), dims) };
}

/** Whether two tensors agree to the tolerance of the cases. */
function agree(got, want) {
  if (got.type !== want.type || got.dims.join() !== want.dims.join()) return false;
  return Array.prototype.every.call(want.data, (element, index) => {
    const other = got.data[index];
    if (typeof element !== "number") return element === other;
    if (Number.isNaN(element)) return Number.isNaN(other);
    return element === other || Math.abs(other - element) <= 1e-7 + 1e-3 * Math.abs(element);
  });
}

/** Runs a case and returns what became of it. */
async function runCase(name) {
  const directory = path.join(cases, name, "test_data_set_0");
  const files = fs.readdirSync(directory);
  const read = (start) => files.filter((file) => file.startsWith(start)).map((file) => readTensor(path.join(directory, file)));
  let session;
  try {
    const [inputs, outputs] = [read("input_"), read("output_")];
    session = await ort.InferenceSession.create(path.join(cases, name, "model.onnx"));
    const feeds = Object.fromEntries(session.inputNames.map((name, index) => [name, inputs[index].tensor]));
    const results = await session.run(feeds);
    const isRight = session.outputNames.every((name, index) => agree(results[name], outputs[index].tensor));
    return isRight ? "passes" : "differs";
  } catch (error) {
    if (error instanceof Unknown || error instanceof TypeError) return "skipped";
    return `fails (${String(error.message).split("\n")[0]})`;
  } finally {
    // Releases before 1.15 have no such method.
    if (session && session.release) await session.release();
  }
}

async function main() {
  for (const name of fs.readdirSync(cases).sort()) console.log(`${name}: ${await runCase(name)}`);
}

main();
