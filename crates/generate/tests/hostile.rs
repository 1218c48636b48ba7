//! Directories with files that are missing, damaged, or made to take time and memory: each call
//! ends soon with a result or an error.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sardonyx_generate::{Classifier, DirectorySummary, EmbedOptions, Embedder, Generator, Message};

use crate::support::{copy, tiny};

/// Time that a call may take, in a build without optimization on a machine with other work.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Opens a directory in every way, and uses what opens. Returns the first error of a generator.
fn use_directory(path: &Path) -> Option<String> {
    let started = Instant::now();
    let _ = DirectorySummary::read(path);
    if let Ok(embedder) = Embedder::open(path) {
        let _ = embedder.embed(&["a text"], &EmbedOptions::default());
    }
    if let Ok(classifier) = Classifier::open(path) {
        let _ = classifier.classify(&["a text"]);
    }
    let generator = Generator::open(path).and_then(|generator| {
        let mut options = generator.options();
        options.max_new_tokens = Some(3);
        let chat = generator.encode_chat(&[Message::new("user", "hello")]);
        generator.generate("a text", &options)?;
        chat
    });
    assert!(started.elapsed() < MAX_TIME, "{}", path.display());
    generator.err().map(|error| error.to_string())
}

#[test]
fn missing_and_contradicting_files_are_errors() {
    let rows: [(&str, Option<&str>, &str); 14] = [
        ("model.onnx", None, "no ONNX file"),
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", Some("{}"), "tokenizer"),
        ("tokenizer.json", Some("[[[["), "tokenizer"),
        ("config.json", Some("[]"), "is not a JSON object"),
        ("config.json", Some("{"), "is not JSON"),
        ("config.json", Some(r#"{"is_encoder_decoder": true}"#), "encoder and decoder"),
        ("config.json", Some(r#"{"vocab_size": -5}"#), "`vocab_size`: expected a whole number"),
        ("generation_config.json", Some(r#"{"eos_token_id": "x"}"#), "`eos_token_id`"),
        ("generation_config.json", Some(r#"{"repetition_penalty": 0}"#), "greater than 0"),
        ("generation_config.json", Some(r#"{"temperature": "warm"}"#), "expected a number"),
        ("chat_template.jinja", Some("{% for"), "chat template"),
        ("chat_template.jinja", Some("{{ messages[0].content * 99999999999 }}"), "chat template"),
        (
            "genai_config.json",
            Some(r#"{"model": {"decoder": {"filename": "../../x.onnx"}}}"#),
            "leaves the directory",
        ),
    ];
    for (name, content, expected) in rows {
        let directory = copy("tiny-gpt2");
        let path = directory.path().join(name);
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let error = use_directory(directory.path()).unwrap_or_default();
        assert!(error.contains(expected), "{name} {content:?}: {error}");
    }
}

#[test]
fn a_sentencepiece_model_alone_is_refused_with_advice() {
    let directory = copy("tiny-gpt2");
    fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    fs::write(directory.path().join("tokenizer.model"), b"x").unwrap();
    let error = use_directory(directory.path()).unwrap();
    assert!(error.contains("has tokenizer.model, but no tokenizer.json"), "{error}");
    assert!(error.contains("save_pretrained"), "{error}");
}

#[test]
fn bombs_end_with_an_error() {
    let doubling = "{% set n = namespace(x='aaaa') %}{% for i in range(70) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    let nested = "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}";
    for template in [doubling, nested] {
        let directory = copy("tiny-gpt2");
        fs::write(directory.path().join("chat_template.jinja"), template).unwrap();
        let error = use_directory(directory.path()).unwrap();
        assert!(error.contains("budget"), "{error}");
    }
    // A pattern that a backtracking matcher needs exponential time for.
    let directory = copy("tiny-gpt2");
    let path = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    tokenizer["pre_tokenizer"] = serde_json::json!({
        "type": "Split", "pattern": {"Regex": "(?=(a+)+$)(a|a)*b"}, "behavior": "Isolated", "invert": false
    });
    fs::write(&path, tokenizer.to_string()).unwrap();
    let started = Instant::now();
    let generator = Generator::open(directory.path()).unwrap();
    let _ = generator.tokenizer().unwrap().encode(&"a".repeat(5_000), true);
    assert!(started.elapsed() < MAX_TIME);
    // A vocabulary with numbers that the model does not have.
    tokenizer["model"]["vocab"]["zzzz"] = serde_json::json!(4_000_000_000u32);
    fs::write(&path, tokenizer.to_string()).unwrap();
    use_directory(directory.path());
}

/// Flips bits of the files of a directory and cuts them.
#[test]
fn damaged_files_neither_panic_nor_hang() {
    let mut state = 7u64;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    for name in ["tiny-gpt2", "tiny-bert"] {
        let mut files: Vec<_> =
            fs::read_dir(tiny(name)).unwrap().map(|e| e.unwrap().path()).collect();
        files.retain(|path| !path.ends_with("answers.json"));
        files.sort();
        for _ in 0..60 {
            let directory = copy(name);
            let file = &files[draw(files.len())];
            let mut bytes = fs::read(file).unwrap();
            let place = draw(bytes.len());
            if draw(3) == 0 {
                bytes.truncate(place);
            } else {
                bytes[place] ^= 1 << draw(8);
            }
            fs::write(directory.path().join(file.file_name().unwrap()), bytes).unwrap();
            use_directory(directory.path());
        }
    }
}
