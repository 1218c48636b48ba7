//! Embeds and ranks texts with fastembed and prints a line for each text: the model, the size of
//! batches and the number of the text, a tab, and the numbers.
//!
//! `fastembed MODELS TEXTS`: MODELS has a directory for each model, as hubs have them, with
//! `model.onnx`. TEXTS is a file with a text a line, of which the first 100 are used, cut to 1 to
//! 30 words so that batches have padding. The library is the one that `ORT_DYLIB_PATH` names.

use fastembed::{
    InitOptionsUserDefined, Pooling, RerankInitOptionsUserDefined, TextEmbedding, TextRerank,
    TokenizerFiles, UserDefinedEmbeddingModel, UserDefinedRerankingModel,
};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Sizes of batches: single texts, an odd number with a rest of two, and one that is larger.
const BATCHES: [usize; 3] = [1, 7, 64];

/// Bound of a text in tokens, which the positions of small models hold.
const LENGTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(models), Some(texts)) = (arguments.next(), arguments.next()) else {
        return Err("fastembed MODELS TEXTS".into());
    };
    let texts = fs::read_to_string(texts)?;
    let lines = texts.lines().filter(|line| !line.trim().is_empty()).take(100).enumerate();
    let texts: Vec<String> =
        lines.map(|(index, line)| cut_text(line, 1 + index * 7 % 30)).collect();
    let mut directories: Vec<PathBuf> =
        fs::read_dir(models)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    directories.sort();
    for directory in directories {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        if let Err(error) = run_model(&name, &directory, &texts) {
            println!("{name}\terror: {}", error.to_string().replace('\n', " "));
        }
    }
    Ok(())
}

/// Returns the first words of a line.
fn cut_text(line: &str, words: usize) -> String {
    line.split_whitespace().take(words).collect::<Vec<_>>().join(" ")
}

/// Prints the lines of one model: scores of a model that classifies pairs, vectors of any other.
fn run_model(name: &str, directory: &Path, texts: &[String]) -> Result<(), Box<dyn Error>> {
    let tokenizer = TokenizerFiles {
        tokenizer_file: fs::read(directory.join("tokenizer.json"))?,
        config_file: fs::read(directory.join("config.json"))?,
        special_tokens_map_file: fs::read(directory.join("special_tokens_map.json"))?,
        tokenizer_config_file: fs::read(directory.join("tokenizer_config.json"))?,
    };
    let config = String::from_utf8_lossy(&tokenizer.config_file).into_owned();
    let model = fs::read(directory.join("model.onnx"))?;
    if config.contains("ForSequenceClassification") {
        let model = UserDefinedRerankingModel::new(model, tokenizer);
        let options = RerankInitOptionsUserDefined::new().with_max_length(LENGTH);
        let mut ranker = TextRerank::try_new_from_user_defined(model, options)?;
        for size in BATCHES {
            let mut ranks =
                ranker.rerank(&texts[0], texts.iter().collect::<Vec<_>>(), false, Some(size))?;
            ranks.sort_by_key(|rank| rank.index);
            for rank in ranks {
                print_line(name, size, rank.index, &[rank.score]);
            }
        }
        return Ok(());
    }
    let model = UserDefinedEmbeddingModel::new(model, tokenizer).with_pooling(Pooling::Mean);
    let options = InitOptionsUserDefined::new().with_max_length(LENGTH);
    let mut encoder = TextEmbedding::try_new_from_user_defined(model, options)?;
    for size in BATCHES {
        for (index, vector) in encoder.embed(texts, Some(size))?.iter().enumerate() {
            print_line(name, size, index, vector);
        }
    }
    Ok(())
}

fn print_line(name: &str, size: usize, index: usize, values: &[f32]) {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    println!("{name}, batches of {size}, text {index}\t{}", values.join(" "));
}
