// Runs the grammar over the samples with the engine that VS Code uses, and compares the scopes with those beside them.
// `--update` writes them instead.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const oniguruma = require('vscode-oniguruma');
const textmate = require('vscode-textmate');

const ROOT = 'source.onnxtxt';
const EXTENSION = path.join(__dirname, '..');
const SAMPLES = path.join(__dirname, 'samples');

const read = (...parts) => fs.readFileSync(path.join(...parts), 'utf8');

async function load() {
  const wasm = fs.readFileSync(require.resolve('vscode-oniguruma/release/onig.wasm'));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const file = path.join(EXTENSION, 'syntaxes', 'onnxtxt.tmLanguage.json');
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async (scope) =>
      scope === ROOT ? textmate.parseRawGrammar(fs.readFileSync(file, 'utf8'), file) : null,
  });
  return registry.loadGrammar(ROOT);
}

// What a word is, for the snapshot: the innermost region and what follows it. Signs that only bracket or separate say
// nothing new.
function shownScopes(scopes) {
  const region = scopes.findLast((scope) => scope.startsWith('meta.'));
  const own = scopes.filter((scope) => !scope.startsWith('meta.') && !scope.startsWith('punctuation.'));
  return own.length === 0 ? '' : [region ?? '', ...own].map((scope) => scope.replace(/\.onnxtxt$/, '')).join(' ').trim();
}

// Every line, and below it what its words are; neighbours that are the same stand together.
function scopesOf(grammar, text, name) {
  const shown = [];
  let state = textmate.INITIAL;
  text.split('\n').forEach((line, index) => {
    const result = grammar.tokenizeLine(line, state);
    assert(!result.stoppedEarly, `${name}:${index + 1}: takes too long`);
    state = result.ruleStack;
    const words = [];
    for (const { startIndex, endIndex, scopes: all } of result.tokens) {
      const word = line.slice(startIndex, endIndex);
      if (word.trim() === '') {
        continue;
      }
      const scopes = all.filter((scope) => scope !== ROOT);
      const place = `${name}:${index + 1}:${startIndex + 1}: ${JSON.stringify(word)}`;
      assert(scopes.some((scope) => !scope.startsWith('meta.')), `${place} has no scope`);
      assert(!scopes.some((scope) => scope.startsWith('invalid.')), `${place} is said to be wrong`);
      const what = shownScopes(scopes);
      const last = words.at(-1);
      if (last?.what === what && last.end === startIndex) {
        last.end = endIndex;
      } else if (what !== '') {
        words.push({ start: startIndex, end: endIndex, what });
      }
    }
    shown.push(`|${line}`);
    for (const { start, end, what } of words) {
      shown.push(` ${' '.repeat(start)}${'^'.repeat(end - start)} ${what}`);
    }
  });
  assert.strictEqual(state.depth, 1, `${name}: something is still open at the end`);
  return shown.join('\n') + '\n';
}

function compare(name, expected, found) {
  const [before, after] = [expected, found].map((text) => text.split('\n'));
  if (expected === found) {
    return true;
  }
  const line = after.findIndex((text, index) => text !== before[index]);
  const at = line < 0 ? after.length : line;
  console.error(`${name}:${at + 1}:\n  expected ${before[at]}\n  found    ${after[at]}`);
  return false;
}

// What the editor itself reads: every expression compiles, and indentation follows the samples.
function checkConfiguration() {
  const { wordPattern, indentationRules, folding } = JSON.parse(read(EXTENSION, 'language-configuration.json'));
  const { increaseIndentPattern, decreaseIndentPattern } = indentationRules;
  const [increase, decrease] = [increaseIndentPattern, decreaseIndentPattern].map((text) => new RegExp(text));
  Object.values(folding.markers).forEach((text) => new RegExp(text));
  const words = 'y_1 = Op:v1<axis: int = -1>(x)'.match(new RegExp(wordPattern, 'g'));
  assert.deepStrictEqual(words, ['y_1', 'Op', 'v1', 'axis', 'int', '-1', 'x']);
  for (const name of ['portable.onnxtxt', 'full.onnxtxt', 'notes.onnxtxt']) {
    let depth = 0;
    read(SAMPLES, name).split('\n').forEach((line, index) => {
      if (line.trim() === '' || line === 'lines",') {
        return;
      }
      depth -= decrease.test(line) ? 1 : 0;
      assert.strictEqual(line.search(/\S/), 2 * depth, `${name}:${index + 1}: another indentation is expected`);
      depth += increase.test(line) ? 1 : 0;
    });
  }
}

// The manifest leads to files that exist.
function checkManifest() {
  const { contributes } = JSON.parse(read(EXTENSION, 'package.json'));
  const [language] = contributes.languages;
  const [grammar] = contributes.grammars;
  assert.strictEqual(language.id, grammar.language);
  assert.strictEqual(grammar.scopeName, JSON.parse(read(EXTENSION, grammar.path)).scopeName);
  assert(fs.existsSync(path.join(EXTENSION, language.configuration)));
}

async function main() {
  const update = process.argv.includes('--update');
  const grammar = await load();
  checkManifest();
  checkConfiguration();
  const samples = fs.readdirSync(SAMPLES).filter((name) => name.endsWith('.onnxtxt'));
  assert(samples.length > 0, 'there are no samples');
  let equal = true;
  for (const name of samples) {
    const file = path.join(SAMPLES, `${name}.scopes`);
    const found = scopesOf(grammar, read(SAMPLES, name), name);
    if (update) {
      fs.writeFileSync(file, found);
    } else {
      equal = compare(`${name}.scopes`, fs.existsSync(file) ? read(file) : '', found) && equal;
    }
  }
  console.log(`${samples.length} samples: ${update ? 'written' : equal ? 'as expected' : 'different'}`);
  process.exitCode = equal ? 0 : 1;
}

main();
