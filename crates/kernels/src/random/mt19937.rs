//! The Mersenne Twister: Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally
//! equidistributed uniform pseudo-random number generator", 1998.

/// Value: words of the state.
const N: usize = 624;
/// Value: distance in the state between two words that are mixed.
const M: usize = 397;

/// Seed of MT19937 with the numbers of numpy's `RandomState`.
#[derive(Debug, Clone, Copy)]
pub struct Mt19937 {
    seed: u32,
}

/// State of the generator.
pub(super) struct State {
    state: [u32; N],
    /// Index of the next word to output; [`N`] if the state is used up.
    next: usize,
}

impl Mt19937 {
    /// Creates the generator of `RandomState(seed)`.
    pub fn new(seed: u32) -> Mt19937 {
        Mt19937 { seed }
    }

    /// Computes the first state, by `init_genrand` of the authors' code of 2002.
    pub(super) fn state(self) -> State {
        let mut state = [0; N];
        let mut word = self.seed;
        for (index, place) in (1u32..).zip(state.iter_mut()) {
            *place = word;
            word = 1_812_433_253u32.wrapping_mul(word ^ word >> 30).wrapping_add(index);
        }
        State { state, next: N }
    }
}

impl State {
    /// Fills `numbers` with numbers uniform in `0..1`, 1 excluded, of 53 bits each.
    pub(super) fn uniform(&mut self, numbers: &mut [f64]) {
        numbers.fill_with(|| self.number());
    }

    /// Fills `numbers` with uniform points within the unit circle, two coordinates each. The polar
    /// method turns each into two normal numbers: Marsaglia and Bray, "A convenient method for
    /// generating normal variables", 1964. The coordinate drawn second comes first, as in numpy.
    pub(super) fn points(&mut self, numbers: &mut [f64]) {
        for point in numbers.chunks_exact_mut(2) {
            loop {
                let x = 2.0 * self.number() - 1.0;
                let y = 2.0 * self.number() - 1.0;
                let square = x * x + y * y;
                if square < 1.0 && square != 0.0 {
                    point[0] = y;
                    point[1] = x;
                    break;
                }
            }
        }
    }

    /// Draws a number in `0..1` of 53 bits.
    #[inline]
    fn number(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// Draws a word of 32 bits.
    #[inline]
    fn word(&mut self) -> u32 {
        if self.next == N {
            self.advance();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// Advances the state by [`N`] words.
    fn advance(&mut self) {
        let state = &mut self.state;
        let mix = |upper: u32, lower: u32, far: u32| {
            let word = upper & 0x8000_0000 | lower & 0x7fff_ffff;
            far ^ word >> 1 ^ (word & 1).wrapping_neg() & 0x9908_b0df
        };
        // Three loops, as the index of the word to mix in wraps around once.
        for i in 0..N - M {
            state[i] = mix(state[i], state[i + 1], state[i + M]);
        }
        for i in N - M..N - 1 {
            state[i] = mix(state[i], state[i + 1], state[i + M - N]);
        }
        state[N - 1] = mix(state[N - 1], state[0], state[M - 1]);
        self.next = 0;
    }
}
