//! Effects of options on answers of the small models of the repository.

use std::time::Instant;

use sardonyx::{ErrorKind, StopFlag};
use sardonyx_generate::{
    Classifier, ContextLimit, DirectoryKind, DirectorySummary, EmbedOptions, Embedder,
    FinishReason, GenerateOptions, Generator, LoadOptions, Message, Prompt,
};

use crate::support::{copy, tiny};

fn open(name: &str) -> Generator {
    Generator::open(tiny(name)).unwrap()
}

/// Returns options of a greedy answer of 12 tokens, which nothing ends early.
fn greedy(generator: &Generator) -> GenerateOptions {
    let mut options = generator.options();
    options.do_sample = false;
    options.max_new_tokens = Some(12);
    options.eos_token_id = Vec::new();
    options
}

const PROMPT: &str = "The weight of a module is a tensor";

#[test]
fn pieces_are_the_answer() {
    for name in ["tiny-gpt2", "tiny-qwen2"] {
        let generator = open(name);
        let options = greedy(&generator);
        let answer = generator.generate(PROMPT, &options).unwrap();
        assert_eq!(answer.tokens.len(), 12);
        assert_eq!(answer.finish_reason, FinishReason::Length);
        let mut text = String::new();
        let mut tokens = Vec::new();
        let mut stream = generator.stream(PROMPT, &options).unwrap();
        for piece in &mut stream {
            let piece = piece.unwrap();
            text += &piece.text;
            tokens.extend(piece.token);
        }
        assert_eq!(text, answer.text);
        assert_eq!(tokens, answer.tokens);
        let timing = stream.timing();
        assert_eq!((timing.answer_tokens, timing.stepped_tokens), (12, 11));
        // The text goes on where the prompt ends.
        let mut all = generator.tokenizer().unwrap().encode(PROMPT, true).unwrap().ids;
        all.extend(&tokens);
        let whole = generator.tokenizer().unwrap().decode(&all, true).unwrap();
        assert_eq!(whole, format!("{PROMPT}{text}"));
    }
}

#[test]
fn sampled_texts_depend_on_the_seed_alone() {
    let mut texts = Vec::new();
    for threads in [1, 2, 3] {
        let mut load = LoadOptions::new();
        load.threads = Some(threads);
        let generator = Generator::open_with(tiny("tiny-qwen2"), &load).unwrap();
        let mut options = greedy(&generator);
        options.do_sample = true;
        options.top_k = 0;
        options.temperature = 1.5;
        for seed in [1, 2] {
            options.seed = seed;
            generator.forget_prefix();
            texts.push((seed, generator.generate(PROMPT, &options).unwrap().tokens));
        }
    }
    for (seed, tokens) in &texts {
        assert_eq!(tokens, &texts[usize::from(*seed == 2)].1);
    }
    assert_ne!(texts[0].1, texts[1].1);
}

#[test]
fn members_of_a_batch_end_at_different_times() {
    for name in ["tiny-gpt2", "tiny-qwen2"] {
        let generator = open(name);
        let mut options = greedy(&generator);
        let prompts = ["a", PROMPT, "two words", "The input has the shape", "x = y"];
        let alone: Vec<Vec<u32>> = prompts
            .iter()
            .map(|prompt| generator.generate(*prompt, &options).unwrap().tokens)
            .collect();
        // An end token that comes early in some answers.
        options.eos_token_id = vec![alone[0][3], alone[1][6]];
        let given: Vec<Prompt<'_>> = prompts.iter().map(|prompt| Prompt::from(*prompt)).collect();
        let found = generator.generate_batch(&given, &options).unwrap();
        let mut lengths = Vec::new();
        for (found, alone) in found.iter().zip(&alone) {
            let end = alone.iter().position(|token| options.eos_token_id.contains(token));
            let expected = &alone[..end.map_or(alone.len(), |end| end + 1)];
            assert_eq!(found.tokens, expected, "{name}");
            lengths.push(found.tokens.len());
        }
        lengths.dedup();
        assert!(lengths.len() > 1, "{name}: all answers have {lengths:?} tokens");
    }
}

#[test]
fn stop_strings_end_the_text_before_them() {
    let generator = open("tiny-gpt2");
    let mut options = greedy(&generator);
    let answer = generator.generate(PROMPT, &options).unwrap();
    // Text over the border of two tokens.
    let characters: Vec<char> = answer.text.chars().collect();
    let stop: String = characters[3..8.min(characters.len())].iter().collect();
    options.stop_strings = vec!["never".to_string(), stop.clone()];
    let found = generator.generate(PROMPT, &options).unwrap();
    assert_eq!(found.finish_reason, FinishReason::StopString);
    assert_eq!(found.text, answer.text[..answer.text.find(&stop).unwrap()]);
}

#[test]
fn beginnings_of_prompts_are_reused() {
    let generator = open("tiny-gpt2");
    let options = greedy(&generator);
    let tokens: Vec<u32> = (10..40).collect();
    let fresh = generator.generate(&tokens, &options).unwrap();
    let mut longer = tokens.clone();
    longer.extend(&fresh.tokens[..4]);
    let mut stream = generator.stream(&longer, &options).unwrap();
    let found: Vec<u32> = stream.by_ref().filter_map(|piece| piece.unwrap().token).collect();
    assert_eq!(stream.timing().reused_tokens, longer.len() - 1);
    assert_eq!(found[..8], fresh.tokens[4..]);
    // A prompt that differs early reuses its equal beginning.
    let mut other = tokens.clone();
    other[5] = 99;
    drop(stream);
    let mut stream = generator.stream(&other, &options).unwrap();
    let reused: Vec<u32> = stream.by_ref().filter_map(|piece| piece.unwrap().token).collect();
    assert_eq!(stream.timing().reused_tokens, 5);
    generator.forget_prefix();
    assert_eq!(generator.generate(&other, &options).unwrap().tokens, reused);
}

#[test]
fn logprobs_are_those_of_the_model() {
    let generator = open("tiny-qwen2");
    let mut options = greedy(&generator);
    options.logprobs = Some(3);
    options.max_new_tokens = Some(2);
    let answer = generator.generate(PROMPT, &options).unwrap();
    let probabilities = generator.next_probabilities(PROMPT, &options).unwrap();
    let first = &answer.logprobs[0];
    assert_eq!(first.top.len(), 3);
    assert_eq!(first.top[0], (first.token, first.logprob));
    assert!((first.logprob.exp() - probabilities[first.token as usize]).abs() < 1e-6);
    assert!(first.top[0].1 >= first.top[1].1 && first.top[1].1 >= first.top[2].1);
}

#[test]
fn the_context_is_a_limit_or_slides() {
    let generator = open("tiny-gpt2");
    assert_eq!(generator.context_length(), Some(64));
    let mut options = greedy(&generator);
    options.max_new_tokens = Some(100);
    let prompt: Vec<u32> = (10..60).collect();
    let found = generator.generate(&prompt, &options).unwrap();
    assert_eq!((found.tokens.len(), found.finish_reason), (14, FinishReason::Length));
    let long: Vec<u32> = (10..80).collect();
    let error = generator.generate(&long, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("`slide`"), "{error}");
    options.context = ContextLimit::Slide;
    let found = generator.generate(&prompt, &options).unwrap();
    assert_eq!(found.tokens.len(), 100);
    // What comes after sliding is the answer to the last half of the context.
    let mut seen = prompt.clone();
    seen.extend(&found.tokens[..14]);
    generator.forget_prefix();
    options.max_new_tokens = Some(5);
    let after = generator.generate(&seen[32..].to_vec(), &options).unwrap();
    assert_eq!(after.tokens, found.tokens[14..19]);
}

#[test]
fn flags_and_deadlines_end_an_answer() {
    let generator = open("tiny-gpt2");
    let mut options = greedy(&generator);
    let flag = StopFlag::new();
    options.stop = Some(flag.clone());
    let mut stream = generator.stream(PROMPT, &options).unwrap();
    assert!(stream.next().unwrap().unwrap().finish_reason.is_none());
    flag.stop();
    let last = stream.next().unwrap().unwrap();
    assert_eq!((last.token, last.finish_reason), (None, Some(FinishReason::Stopped)));
    assert!(stream.next().is_none());
    options.stop = None;
    options.deadline = Some(Instant::now());
    let found = generator.generate(PROMPT, &options).unwrap();
    assert_eq!((found.tokens.len(), found.finish_reason), (0, FinishReason::Stopped));
}

#[test]
fn a_memory_limit_is_kept() {
    let mut load = LoadOptions::new();
    load.memory_limit = Some(64 << 20);
    let generator = Generator::open_with(tiny("tiny-gpt2"), &load).unwrap();
    let options = greedy(&generator);
    // 2 layers of keys and values of 32 floats each.
    assert_eq!(generator.state_bytes_per_token(), 2 * 2 * 32 * 4);
    assert_eq!(generator.generate(PROMPT, &options).unwrap().tokens.len(), 12);
    load.memory_limit = Some(30_000);
    let refused = Generator::open_with(tiny("tiny-gpt2"), &load)
        .and_then(|generator| generator.generate(&(10..60).collect::<Vec<u32>>(), &options));
    assert!(refused.is_err());
}

#[test]
fn options_out_of_range_are_refused() {
    let generator = open("tiny-gpt2");
    let rows: [(&str, fn(&mut GenerateOptions)); 8] = [
        ("temperature", |o| o.temperature = 0.0),
        ("top_p", |o| o.top_p = 1.5),
        ("min_p", |o| o.min_p = f32::NAN),
        ("repetition_penalty", |o| o.repetition_penalty = -1.0),
        ("presence_penalty", |o| o.presence_penalty = f32::INFINITY),
        ("logit_bias", |o| o.logit_bias = [(1, f32::NAN)].into()),
        ("bad_words_ids", |o| o.bad_words_ids = vec![Vec::new()]),
        ("stop_strings", |o| o.stop_strings = vec![String::new()]),
    ];
    for (name, change) in rows {
        let mut options = greedy(&generator);
        options.do_sample = true;
        change(&mut options);
        let error = generator.generate(PROMPT, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn conversations_become_prompts() {
    let generator = open("tiny-qwen2");
    let tokens = generator.encode_chat(&[Message::new("user", "Hi")]).unwrap();
    let text = generator.tokenizer().unwrap().decode(&tokens, false).unwrap();
    assert_eq!(text, "<|user|>\nHi</s>\n<|assistant|>\n");
}

#[test]
fn vectors_have_the_order_of_texts() {
    let directory = copy("tiny-bert");
    let path = directory.path();
    std::fs::create_dir(path.join("1_Pooling")).unwrap();
    std::fs::write(path.join("1_Pooling/config.json"), r#"{"pooling_mode_mean_tokens": true}"#)
        .unwrap();
    let prompts = r#"{"prompts": {"query": "find "}, "default_prompt_name": null}"#;
    std::fs::write(path.join("config_sentence_transformers.json"), prompts).unwrap();
    // Its only output has a value for each class, which serves as a vector.
    let embedder = Embedder::open(path).unwrap();
    let texts = ["a", "a much longer text with many words", "b c", ""];
    let options = EmbedOptions::default();
    let together = embedder.embed(&texts, &options).unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        let alone = embedder.embed(&[text], &options).unwrap().remove(0);
        for (a, b) in alone.iter().zip(vector) {
            assert!((a - b).abs() < 1e-5, "{text}");
        }
    }
    let mut named = options.clone();
    named.prompt_name = Some("query".to_string());
    let mut given = options.clone();
    given.prompt = Some("find ".to_string());
    assert_eq!(embedder.embed(&["x"], &named).unwrap(), embedder.embed(&["x"], &given).unwrap());
    named.prompt_name = Some("other".to_string());
    let error = embedder.embed(&["x"], &named).unwrap_err().to_string();
    assert!(error.contains("its prompts are: query"), "{error}");
    let mut cut = options.clone();
    cut.normalize = Some(true);
    cut.truncate_dim = Some(1);
    assert_eq!(embedder.embed(&["x"], &cut).unwrap()[0][0].abs(), 1.0);
    cut.truncate_dim = Some(9);
    assert!(embedder.embed(&["x"], &cut).is_err());
}

#[test]
fn classes_have_their_names() {
    let classifier = Classifier::open(tiny("tiny-bert")).unwrap();
    let labels = classifier.classify(&["some text"]).unwrap().remove(0);
    let mut names: Vec<&str> = labels.iter().map(|label| label.label.as_str()).collect();
    assert!(labels[0].score >= labels[1].score);
    assert!((labels[0].score + labels[1].score - 1.0).abs() < 1e-6);
    names.sort_unstable();
    assert_eq!(names, ["no", "yes"]);
    let pairs = classifier.classify_pairs("some text", &["other", "third"]).unwrap();
    assert_eq!(pairs.len(), 2);
    assert!(classifier.find_spans(&["x"]).is_err());
}

#[test]
fn directories_are_summarized() {
    let rows = [
        ("tiny-gpt2", DirectoryKind::Generator, Some(512)),
        ("tiny-qwen2", DirectoryKind::Generator, Some(256)),
        ("tiny-bert", DirectoryKind::Classifier, None),
    ];
    for (name, kind, state) in rows {
        let summary = DirectorySummary::read(tiny(name)).unwrap();
        assert_eq!(summary.kind, kind, "{name}");
        assert_eq!(summary.state_bytes_per_token, state, "{name}");
        assert_eq!(summary.problems, Vec::<String>::new(), "{name}");
        assert_eq!(summary.model.as_deref(), Some("model.onnx"));
        assert_eq!(summary.context_length, Some(64));
    }
}

/// Compares with the greedy answer of ONNX Runtime, which reads the whole text at each step.
#[test]
fn the_example_writes_words() {
    let generator = Generator::open(tiny("../../examples/characters")).unwrap();
    let mut options = greedy(&generator);
    options.max_new_tokens = Some(30);
    let found = generator.generate("The command ", &options).unwrap();
    assert_eq!(found.text, "the the a sthe model arges and");
}
