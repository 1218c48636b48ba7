//! Answers of other programs for directories with random weights, stored beside the models.
//!
//! `tests/generate` has small models, whose answers `tests/agree/generate_small.py` computes by
//! ONNX Runtime, numpy and Jinja2. `cargo xtask generate` makes models of ten architectures, and
//! stores the answers of transformers; `GENERATE_MODELS` is their directory.

use std::fs;
use std::path::{Path, PathBuf};

use sardonyx_generate::{
    Classifier, EmbedOptions, Embedder, GenerateOptions, Generator, Prompt, Tokenizer,
};
use serde_json::Value;

/// Directories with answers: those of the repository, or of `GENERATE_MODELS`.
fn directories() -> Vec<(PathBuf, Value)> {
    let root = std::env::var_os("GENERATE_MODELS").map(PathBuf::from);
    let root = root.unwrap_or_else(|| crate::support::tiny(""));
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(text) = fs::read_to_string(path.join("answers.json")) {
            found.push((path, serde_json::from_str(&text).unwrap()));
        }
    }
    assert!(!found.is_empty());
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Runs `job` on each directory whose answers have `key`.
fn each_with(key: &str, job: impl Fn(&Path, &Value)) {
    let mut count = 0;
    for (path, answers) in directories() {
        if let Some(found) = answers.get(key) {
            job(&path, found);
            count += 1;
        }
    }
    assert!(count > 0, "no directory has answers of the kind {key}");
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Distance of the best two scores, below which rounding may decide.
const TIE: f64 = 1e-3;

fn greedy_options(generator: &Generator) -> GenerateOptions {
    let mut options = generator.options();
    options.do_sample = false;
    options.max_new_tokens = Some(24);
    options.eos_token_id = vec![1, 44, 45];
    options
}

/// Checks an answer token by token; returns whether a tie decided.
fn check_greedy(name: &str, answer: &Value, found: &[u32]) -> bool {
    let expected = ids(&answer["tokens"]);
    let first = found.iter().zip(&expected).position(|(a, b)| a != b);
    match first {
        Some(place) => {
            let gap = answer["gaps"][place].as_f64().unwrap();
            assert!(gap < TIE, "{name}: token {place} is {found:?}, not {expected:?}; gap {gap}");
            true
        }
        None => {
            assert_eq!(found.len(), expected.len(), "{name}");
            false
        }
    }
}

#[test]
fn greedy_answers_are_those_of_transformers() {
    each_with("greedy", |path, answers| {
        let name = path.file_name().unwrap().to_string_lossy();
        let generator = Generator::open(path).unwrap();
        let options = greedy_options(&generator);
        let (mut tokens, mut ties) = (0, 0);
        for answer in answers.as_array().unwrap() {
            let found = generator.generate(&ids(&answer["prompt"]), &options).unwrap();
            tokens += found.tokens.len();
            ties += usize::from(check_greedy(&name, answer, &found.tokens));
        }
        println!(
            "{name}: {} prompts, {tokens} tokens, {ties} ties",
            answers.as_array().unwrap().len()
        );
    });
}

#[test]
fn batches_give_the_answers_of_single_prompts() {
    each_with("greedy", |path, answers| {
        let name = path.file_name().unwrap().to_string_lossy();
        let generator = Generator::open(path).unwrap();
        let options = greedy_options(&generator);
        for answers in answers.as_array().unwrap().chunks(7) {
            let prompts: Vec<Vec<u32>> =
                answers.iter().map(|answer| ids(&answer["prompt"])).collect();
            let given: Vec<Prompt<'_>> = prompts.iter().map(Prompt::from).collect();
            let found = generator.generate_batch(&given, &options).unwrap();
            for (answer, found) in answers.iter().zip(found) {
                check_greedy(&name, answer, &found.tokens);
            }
        }
    });
}

/// Sets the options that a JSON object has, by their names in transformers.
fn set_options(options: &mut GenerateOptions, values: &Value) {
    #[expect(clippy::cast_possible_truncation, reason = "options are f32")]
    let number = |value: &Value| value.as_f64().unwrap() as f32;
    let count = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    for (name, value) in values.as_object().unwrap() {
        match name.as_str() {
            "temperature" => options.temperature = number(value),
            "top_k" => options.top_k = count(value),
            "top_p" => options.top_p = number(value),
            "min_p" => options.min_p = number(value),
            "repetition_penalty" => options.repetition_penalty = number(value),
            "no_repeat_ngram_size" => options.no_repeat_ngram_size = count(value),
            "bad_words_ids" => {
                options.bad_words_ids = value.as_array().unwrap().iter().map(ids).collect();
            }
            "min_new_tokens" => options.min_new_tokens = count(value),
            "suppress_tokens" => options.suppress_tokens = ids(value),
            "sequence_bias" => {
                for pair in value.as_array().unwrap() {
                    options.logit_bias.insert(ids(&pair[0])[0], number(&pair[1]));
                }
            }
            other => panic!("unknown option {other}"),
        }
    }
}

#[test]
fn probabilities_are_those_of_processors() {
    each_with("options", |path, answers| {
        let generator = Generator::open(path).unwrap();
        let prompt = ids(&answers["prompt"]);
        let mut worst = 0.0f64;
        for answer in answers["answers"].as_array().unwrap() {
            let mut options = GenerateOptions::default();
            options.do_sample = true;
            options.top_k = 0;
            options.eos_token_id = ids(&answers["ends"]);
            set_options(&mut options, &answer["options"]);
            let found = generator.next_probabilities(&prompt, &options).unwrap();
            let expected = numbers(&answer["probabilities"]);
            assert_eq!(found.len(), expected.len());
            for (token, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let difference = (f64::from(*found) - expected).abs();
                worst = worst.max(difference);
                assert!(
                    difference < 1e-5,
                    "{}: {}: token {token} has {found}, not {expected}",
                    path.display(),
                    answer["options"]
                );
            }
        }
        println!("{}: worst difference of a probability {worst:.1e}", path.display());
    });
}

#[test]
fn tokens_are_those_of_transformers() {
    each_with("texts", |path, answers| {
        let tokenizer = Tokenizer::open(path.join("tokenizer.json")).unwrap();
        for answer in answers.as_array().unwrap() {
            let text = answer["text"].as_str().unwrap();
            let found = tokenizer.encode(text, true).unwrap().ids;
            // Encoders cut texts to 64 tokens, the last of which ends them.
            let expected = ids(&answer["ids"]);
            if expected.len() < 64 || answer.get("decoded").is_some() {
                assert_eq!(found, expected, "{text:?}");
            }
            if let Some(decoded) = answer.get("decoded") {
                assert_eq!(tokenizer.decode(&found, true).unwrap(), decoded.as_str().unwrap());
            }
        }
    });
}

#[test]
fn conversations_are_rendered_as_by_transformers() {
    each_with("chats", |path, answers| {
        let generator = Generator::open(path).unwrap();
        let template = generator.chat_template().unwrap();
        for answer in answers.as_array().unwrap() {
            let nothing = serde_json::Map::new();
            let found = template.render_json(&answer["messages"], true, &nothing).unwrap();
            assert_eq!(found, answer["text"].as_str().unwrap());
        }
    });
}

fn texts_of(path: &Path) -> Vec<String> {
    let answers: Value =
        serde_json::from_str(&fs::read_to_string(path.join("answers.json")).unwrap()).unwrap();
    let texts = answers["texts"].as_array().unwrap().iter();
    texts.map(|answer| answer["text"].as_str().unwrap().to_string()).collect()
}

fn assert_close(found: &[f32], expected: &[f64], place: &str) {
    assert_eq!(found.len(), expected.len(), "{place}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5, "{place}: {found}, not {expected}");
    }
}

#[test]
fn vectors_are_those_of_sentence_transformers() {
    // The repository has no encoder with vectors alone.
    if std::env::var_os("GENERATE_MODELS").is_none() {
        return;
    }
    each_with("vectors", |path, answers| {
        let embedder = Embedder::open(path).unwrap();
        let expected = answers.as_array().unwrap();
        let texts = texts_of(path);
        let found = embedder.embed(&texts[..expected.len()], &EmbedOptions::default()).unwrap();
        for ((found, expected), text) in found.iter().zip(expected).zip(&texts) {
            assert_close(found, &numbers(expected), text);
        }
    });
}

#[test]
fn labels_are_those_of_transformers() {
    each_with("scores", |path, answers| {
        let classifier = Classifier::open(path).unwrap();
        let file: Value =
            serde_json::from_str(&fs::read_to_string(path.join("answers.json")).unwrap()).unwrap();
        for (pair, expected) in
            file["pairs"].as_array().unwrap().iter().zip(answers.as_array().unwrap())
        {
            let [first, second] = [0, 1].map(|index| pair[index].as_str().unwrap());
            let expected = numbers(expected);
            if let [score] = expected[..] {
                let found = classifier.rerank(first, &[second]).unwrap();
                assert_close(&found, &[score], first);
                continue;
            }
            let found = classifier.classify(&[first]).unwrap().remove(0);
            let mut sorted = expected;
            sorted.sort_by(|a, b| b.total_cmp(a));
            let scores: Vec<f32> = found.iter().map(|label| label.score).collect();
            assert_close(&scores, &sorted, first);
        }
    });
}

#[test]
fn spans_are_those_of_transformers() {
    if std::env::var_os("GENERATE_MODELS").is_none() {
        return;
    }
    each_with("spans", |path, answers| {
        let classifier = Classifier::open(path).unwrap();
        assert!(classifier.labels_tokens());
        let texts = texts_of(path);
        let expected = answers.as_array().unwrap();
        let found = classifier.find_spans(&texts[..expected.len()]).unwrap();
        for ((found, expected), text) in found.iter().zip(expected).zip(&texts) {
            // Python counts characters.
            let characters = |byte: usize| text[..byte].chars().count() as u64;
            let found: Vec<_> = found
                .iter()
                .map(|span| (span.label.clone(), characters(span.start), characters(span.end)))
                .collect();
            let expected: Vec<_> = expected
                .as_array()
                .unwrap()
                .iter()
                .map(|span| {
                    let number = |key: &str| span[key].as_u64().unwrap();
                    (span["label"].as_str().unwrap().to_string(), number("start"), number("end"))
                })
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    });
}
