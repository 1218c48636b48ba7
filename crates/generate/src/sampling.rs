//! Choosing the next token by its scores: the most likely one, or a draw.

use crate::error::Error;
use crate::options::GenerateOptions;

/// Generator of the draws of one text: SplitMix64 (Steele et al., "Fast Splittable Pseudorandom
/// Number Generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// Creates the generator of the member of a batch with this number.
    pub(crate) fn new(seed: u64, member: usize) -> Draws {
        let mut draws = Draws { state: seed };
        let first = draws.next_bits();
        // Members differ by a hash, not by an offset, which would repeat the numbers of others.
        let mut member =
            Draws { state: first ^ (member as u64).wrapping_mul(0xd134_2543_de82_ef95) };
        Draws { state: member.next_bits() }
    }

    fn next_bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 to 1, without 1.
    fn next_unit(&mut self) -> f64 {
        (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Chooses the next token by `scores`, which it may change.
///
/// # Errors
///
/// If no token is allowed, or the model's scores are not numbers.
pub(crate) fn choose_token(
    options: &GenerateOptions,
    scores: &mut [f32],
    draws: &mut Draws,
) -> Result<u32, Error> {
    let Some(best) = find_largest(scores) else {
        return Err(Error::invalid("the model's scores are not numbers"));
    };
    if scores[best] == f32::NEG_INFINITY {
        return Err(Error::argument("no token is allowed: options ban every one"));
    }
    let chosen = if options.do_sample {
        let probabilities = compute_probabilities(options, scores);
        draw_index(&probabilities, draws.next_unit())
    } else {
        best
    };
    Ok(u32::try_from(chosen).unwrap_or(u32::MAX))
}

/// Returns the index of the largest score, the first of equal ones; `None` if one is NaN or there
/// are none.
fn find_largest(scores: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, score) in scores.iter().enumerate() {
        if score.is_nan() {
            return None;
        }
        if *score > scores[best] {
            best = index;
        }
    }
    (!scores.is_empty()).then_some(best)
}

/// Computes the probabilities that a token is drawn with: temperature, then `top_k`, `top_p` and
/// `min_p`. At least one token keeps a probability.
pub(crate) fn compute_probabilities(options: &GenerateOptions, scores: &mut [f32]) -> Vec<f32> {
    for score in scores.iter_mut() {
        *score /= options.temperature;
    }
    if options.top_k > 0 && options.top_k < scores.len() {
        keep_top_k(scores, options.top_k);
    }
    if options.top_p < 1.0 {
        keep_top_p(scores, options.top_p);
    }
    if options.min_p > 0.0 {
        keep_min_p(scores, options.min_p);
    }
    softmax(scores)
}

/// Bans the tokens whose scores are less than the `count` largest.
fn keep_top_k(scores: &mut [f32], count: usize) {
    let mut sorted = scores.to_vec();
    let (_, least, _) = sorted.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    let least = *least;
    for score in scores.iter_mut().filter(|score| **score < least) {
        *score = f32::NEG_INFINITY;
    }
}

/// Bans the least likely tokens, whose probabilities sum to at most `1 - share`.
fn keep_top_p(scores: &mut [f32], share: f32) {
    let probabilities = softmax(scores);
    let mut order: Vec<usize> = (0..scores.len()).filter(|i| probabilities[*i] > 0.0).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let mut sum = 0.0f32;
    let Some((_, others)) = order.split_last() else {
        return;
    };
    for index in others {
        sum += probabilities[*index];
        if sum > 1.0 - share {
            break;
        }
        scores[*index] = f32::NEG_INFINITY;
    }
}

/// Bans the tokens whose probabilities are less than a share of the largest.
fn keep_min_p(scores: &mut [f32], share: f32) {
    let probabilities = softmax(scores);
    let largest = probabilities.iter().copied().fold(0.0, f32::max);
    for (score, probability) in scores.iter_mut().zip(&probabilities) {
        if *probability < share * largest {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Computes the softmax of scores, with sums in double precision.
pub(crate) fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores.iter().map(|score| f64::from(score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    #[expect(clippy::cast_possible_truncation, reason = "probabilities are f32")]
    powers.iter().map(|power| (power / sum) as f32).collect()
}

/// Computes the logarithms of the softmax of scores, with sums in double precision.
pub(crate) fn log_softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
    let log_sum = sum.ln();
    #[expect(clippy::cast_possible_truncation, reason = "probabilities are f32")]
    scores.iter().map(|score| (f64::from(score - largest) - log_sum) as f32).collect()
}

/// Returns the index at which the sum of probabilities exceeds `unit`, a number from 0 to 1.
fn draw_index(probabilities: &[f32], unit: f64) -> usize {
    let mut sum = 0.0f64;
    let mut last = 0;
    for (index, probability) in probabilities.iter().enumerate() {
        if *probability > 0.0 {
            sum += f64::from(*probability);
            last = index;
            if sum > unit {
                return index;
            }
        }
    }
    // The sum of rounded probabilities may be less than the number.
    last
}

#[cfg(test)]
mod tests {
    use super::{Draws, choose_token, compute_probabilities, draw_index};
    use crate::options::GenerateOptions;

    fn options(change: impl FnOnce(&mut GenerateOptions)) -> GenerateOptions {
        let mut options =
            GenerateOptions { do_sample: true, top_k: 0, ..GenerateOptions::default() };
        change(&mut options);
        options
    }

    fn round(probabilities: &[f32]) -> Vec<i32> {
        probabilities.iter().map(|p| (p * 1000.0).round() as i32).collect()
    }

    #[test]
    fn options_narrow_the_draw() {
        let logits = [8f32, 4.0, 2.0, 2.0].map(f32::ln);
        let rows: [(&str, fn(&mut GenerateOptions), [i32; 4]); 8] = [
            ("all", |_| {}, [500, 250, 125, 125]),
            ("temperature", |o| o.temperature = 0.5, [727, 182, 45, 45]),
            ("top 2", |o| o.top_k = 2, [667, 333, 0, 0]),
            ("ties of top 3 stay", |o| o.top_k = 3, [500, 250, 125, 125]),
            ("top 0.6", |o| o.top_p = 0.6, [667, 333, 0, 0]),
            ("top 0", |o| o.top_p = 0.0, [1000, 0, 0, 0]),
            ("min 0.3", |o| o.min_p = 0.3, [667, 333, 0, 0]),
            ("min 1", |o| o.min_p = 1.0, [1000, 0, 0, 0]),
        ];
        for (name, change, expected) in rows {
            let mut scores = logits.to_vec();
            assert_eq!(
                round(&compute_probabilities(&options(change), &mut scores)),
                expected,
                "{name}"
            );
        }
    }

    /// Draws 100,000 tokens: Pearson's statistic of 7 degrees of freedom exceeds 24.3 once in a
    /// thousand seeds.
    #[test]
    fn draws_follow_probabilities() {
        let logits = [0.1f32, 1.0, -2.0, 0.5, 3.0, 0.0, 2.0, -1.0];
        let options = options(|o| o.temperature = 0.8);
        let probabilities = compute_probabilities(&options, &mut logits.to_vec());
        let mut draws = Draws::new(1, 0);
        let mut counts = [0f64; 8];
        for _ in 0..100_000 {
            let token = choose_token(&options, &mut logits.to_vec(), &mut draws).unwrap();
            counts[token as usize] += 1.0;
        }
        let terms = counts.iter().zip(&probabilities).map(|(count, probability)| {
            let expected = f64::from(*probability) * 100_000.0;
            (count - expected).powi(2) / expected
        });
        let statistic: f64 = terms.sum();
        assert!(statistic < 24.3, "{statistic}");
    }

    #[test]
    fn seeds_and_members_have_draws_of_their_own() {
        let first = |seed, member| Draws::new(seed, member).next_bits();
        assert_eq!(first(1, 0), first(1, 0));
        let mut all: Vec<u64> =
            (0..10).flat_map(|seed| (0..10).map(move |member| first(seed, member))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100);
    }

    #[test]
    fn scores_that_allow_no_token_are_errors() {
        let mut draws = Draws::new(0, 0);
        let greedy = GenerateOptions::default();
        assert!(choose_token(&greedy, &mut [f32::NEG_INFINITY; 2], &mut draws).is_err());
        assert!(choose_token(&greedy, &mut [0.0, f32::NAN], &mut draws).is_err());
        assert!(choose_token(&greedy, &mut [], &mut draws).is_err());
        assert_eq!(choose_token(&greedy, &mut [1.0, 2.0, 2.0], &mut draws).unwrap(), 1);
        assert_eq!(draw_index(&[0.5, 0.0, 0.25], 0.9), 2);
    }
}
