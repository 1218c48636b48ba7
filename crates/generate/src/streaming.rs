//! Tokens to text as they come: whole characters, and stop strings across tokens.

use crate::error::Error;
use crate::tokenizer::Tokenizer;

/// Converts the tokens of an answer to text, piece by piece.
///
/// Decoders of tokenizers look at neighbours: a character may have several tokens, and the first
/// word of a text loses its space. So a few tokens before the new ones are decoded with them, and
/// the difference is the new text.
#[derive(Debug)]
pub(crate) struct Detokenizer {
    /// Last tokens: some whose text has been returned, then new ones.
    window: Vec<u32>,
    /// Text of the tokens of the window that has been returned.
    returned: String,
    skip_special_tokens: bool,
}

/// Number of tokens of known text that stay in the window.
const CONTEXT: usize = 6;
/// Number of tokens at which the window is cut.
const MAX_WINDOW: usize = 24;
/// Maximum number of bytes of an incomplete character. Each may be decoded as a U+FFFD.
const MAX_INCOMPLETE: usize = 3;

/// Returns a text without the replacement characters at its end that the next token may complete.
fn without_incomplete(text: &str) -> &str {
    let mut shown = text;
    for _ in 0..MAX_INCOMPLETE {
        match shown.strip_suffix('\u{fffd}') {
            Some(rest) => shown = rest,
            None => break,
        }
    }
    shown
}

impl Detokenizer {
    /// Creates a converter of the tokens after `prompt`.
    pub(crate) fn new(
        tokenizer: &Tokenizer,
        prompt: &[u32],
        skip_special_tokens: bool,
    ) -> Result<Detokenizer, Error> {
        let window = prompt[prompt.len().saturating_sub(CONTEXT)..].to_vec();
        let text = tokenizer.decode(&window, skip_special_tokens)?;
        let returned = without_incomplete(&text).to_string();
        Ok(Detokenizer { window, returned, skip_special_tokens })
    }

    /// Adds a token; returns the text that is complete, which is often empty.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String, Error> {
        self.window.push(token);
        let text = tokenizer.decode(&self.window, self.skip_special_tokens)?;
        let shown = without_incomplete(&text);
        let is_longest = self.window.len() >= 4 * MAX_WINDOW;
        // Tokens of bytes may be decoded together: an incomplete character then hides complete
        // ones before it, and the text is shorter for a while.
        if !shown.starts_with(&self.returned) && !is_longest {
            return Ok(String::new());
        }
        let new = self.find_new_text(shown);
        self.returned = shown.to_string();
        if is_longest || (self.window.len() >= MAX_WINDOW && shown.len() == text.len()) {
            self.cut_window(tokenizer)?;
        }
        Ok(new)
    }

    /// Drops tokens from the beginning of the window, where that does not cut a character.
    fn cut_window(&mut self, tokenizer: &Tokenizer) -> Result<(), Error> {
        for kept in [CONTEXT, 2 * CONTEXT] {
            let tail = &self.window[self.window.len() - kept..];
            let text = tokenizer.decode(tail, self.skip_special_tokens)?;
            if !text.contains('\u{fffd}') || self.window.len() >= 4 * MAX_WINDOW {
                self.returned = text;
                self.window.drain(..self.window.len() - kept);
                break;
            }
        }
        Ok(())
    }

    /// Returns the rest of the text, in which an incomplete character is U+FFFD.
    pub(crate) fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, Error> {
        let text = tokenizer.decode(&self.window, self.skip_special_tokens)?;
        let new = self.find_new_text(&text);
        self.returned = text;
        Ok(new)
    }

    /// Returns what `text` has after the text that has been returned.
    fn find_new_text(&self, text: &str) -> String {
        if let Some(new) = text.strip_prefix(self.returned.as_str()) {
            return new.to_string();
        }
        // A decoder changed the end of what has been returned, or the incomplete end of the
        // prompt became a character.
        let pairs = text.char_indices().zip(self.returned.chars());
        let shared = pairs.take_while(|((_, a), b)| a == b).last();
        let start = shared.map_or(0, |((start, character), _)| start + character.len_utf8());
        text[start..].to_string()
    }
}

/// Finds stop strings in a text that comes in pieces, and holds back what may begin one.
#[derive(Debug)]
pub(crate) struct StopFinder {
    strings: Vec<String>,
    held: String,
}

/// Text that can be shown, and whether a stop string came after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) text: String,
    pub(crate) is_end: bool,
}

impl StopFinder {
    pub(crate) fn new(strings: &[String]) -> StopFinder {
        StopFinder { strings: strings.to_vec(), held: String::new() }
    }

    /// Adds a piece of text; returns the text that cannot be part of a stop string.
    pub(crate) fn push(&mut self, piece: &str) -> Released {
        self.held.push_str(piece);
        let found = self.strings.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(start) = found {
            self.held.truncate(start);
            return Released { text: std::mem::take(&mut self.held), is_end: true };
        }
        let starts = self.held.char_indices().map(|(start, _)| start);
        let may_begin =
            |start: &usize| self.strings.iter().any(|stop| stop.starts_with(&self.held[*start..]));
        // Nothing longer than the longest stop string has to be held.
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        let start = starts.filter(|start| *start >= from).find(may_begin);
        let rest = self.held.split_off(start.unwrap_or(self.held.len()));
        Released { text: std::mem::replace(&mut self.held, rest), is_end: false }
    }

    /// Returns the text that was held back.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::{Detokenizer, Released, StopFinder};
    use crate::tokenizer::Tokenizer;

    /// Tokens of single bytes, as tokenizers of bytes have them: text comes in whole characters,
    /// and bytes that are not UTF-8 come as U+FFFD.
    #[test]
    fn characters_come_whole() {
        let bytes: Vec<u8> = (0u8..=255).collect();
        let vocab: Vec<String> = bytes.iter().map(|b| format!("\"<0x{b:02X}>\":{b}")).collect();
        let json = format!(
            r#"{{"version":"1.0","added_tokens":[],"decoder":{{"type":"Sequence","decoders":[{{"type":"ByteFallback"}},{{"type":"Fuse"}}]}},
            "model":{{"type":"BPE","byte_fallback":true,"vocab":{{{}}},"merges":[]}}}}"#,
            vocab.join(",")
        );
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        let long = "é漢👍🏽".repeat(20);
        let rows: [(&[u8], &[u8], &str); 4] = [
            (b"", "aé漢👍".as_bytes(), "aé漢👍"),
            (b"abc", long.as_bytes(), &long),
            (b"x", "\u{fffd}y".as_bytes(), "\u{fffd}y"),
            (b"", b"\xc3\xc3\xc3\xc3\xa9", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ];
        for (prompt, answer, expected) in rows {
            let tokens =
                |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).collect::<Vec<_>>();
            let mut detokenizer = Detokenizer::new(&tokenizer, &tokens(prompt), true).unwrap();
            let mut text = String::new();
            for token in tokens(answer) {
                text += &detokenizer.push(&tokenizer, token).unwrap();
            }
            assert_eq!(text + &detokenizer.finish(&tokenizer).unwrap(), expected);
        }
    }

    #[test]
    fn stop_strings_are_found_across_pieces() {
        let rows: [(&[&str], &[&str], &[&str], bool); 7] = [
            (&["END"], &["a E", "N", "D b"], &["a ", "", ""], true),
            (&["END"], &["a E", "N", "X"], &["a ", "", "ENX"], false),
            (&["END", "N"], &["a E", "N", "D"], &["a ", "E"], true),
            (&["aab"], &["aa", "a", "b"], &["", "a", ""], true),
            (&["ö!"], &["xö", "ö", "!"], &["x", "ö", ""], true),
            (&[], &["a", "b"], &["a", "b"], false),
            (&["\n\n"], &["one\n", "two\n", "\nthree"], &["one", "\ntwo", ""], true),
        ];
        for (stops, pieces, expected, ends) in rows {
            let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
            let mut finder = StopFinder::new(&stops);
            let mut shown = Vec::new();
            let mut is_end = false;
            for piece in pieces {
                let released = finder.push(piece);
                shown.push(released.text);
                is_end = released.is_end;
                if is_end {
                    break;
                }
            }
            assert_eq!(shown, expected, "{stops:?}");
            assert_eq!(is_end, ends, "{stops:?}");
        }
    }

    #[test]
    fn held_text_comes_at_the_end() {
        let mut finder = StopFinder::new(&["stop".to_string()]);
        assert_eq!(finder.push("sto"), Released { text: String::new(), is_end: false });
        assert_eq!(finder.finish(), "sto");
    }
}
