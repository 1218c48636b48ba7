// Runs pipelines of transformers.js on models in directories and prints a line of JSON for each.
//
// node pipelines.js MODULES MODELS: MODULES is a directory node_modules with @huggingface/transformers, MODELS has a directory for each
// model, as hubs have them: tokenizer.json, config.json, model.onnx. Remote models are off.
"use strict";

const fs = require("fs");
const path = require("path");

const [, , modules, models] = process.argv;

/** Task of a model by the class that its configuration names. */
const TASKS = [
  [/ForSequenceClassification$/, "text-classification"],
  [/ForTokenClassification$/, "token-classification"],
  [/(CausalLM|LMHeadModel)$/, "text-generation"],
  [/Model$/, "feature-extraction"],
];

const TEXT = "The quick brown fox jumps over the lazy dog";

/** Rounds numbers, so that the last bits of sums do not count. */
function round(value) {
  if (typeof value === "number") return Math.round(value * 1e4) / 1e4;
  if (Array.isArray(value)) return value.map(round);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, round(part)]));
  return value;
}

async function run(pipeline, name) {
  const config = JSON.parse(fs.readFileSync(path.join(models, name, "config.json")));
  const found = TASKS.find(([pattern]) => pattern.test((config.architectures || ["Model"])[0]));
  const task = found[1];
  const pipe = await pipeline(task, name, { dtype: "fp32", device: "cpu", subfolder: "" });
  try {
    if (task === "feature-extraction") {
      const result = await pipe(TEXT, { pooling: "mean", normalize: true });
      return { task, dims: result.dims, start: round(Array.from(result.data).slice(0, 8)) };
    }
    if (task === "text-generation") return { task, result: await pipe(TEXT, { max_new_tokens: 12, do_sample: false }) };
    return { task, result: round(await pipe(TEXT)) };
  } finally {
    await pipe.dispose();
  }
}

async function main() {
  const entry = require.resolve("@huggingface/transformers", { paths: [path.resolve(modules)] });
  const { pipeline, env } = require(entry);
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = path.resolve(models);
  for (const name of fs.readdirSync(models).sort()) {
    let result;
    try {
      result = await run(pipeline, name);
    } catch (error) {
      result = { error: String(error.message).split("\n")[0] };
    }
    console.log(JSON.stringify({ name, ...result }));
  }
}

main();
