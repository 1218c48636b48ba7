//! Images whose channels come last: random networks give the same as node by node in rows.

use std::fmt::Write;

use crate::both_ways;
use crate::both_ways::{Both, Numbers, inputs};
use sardonyx_model::Type;

/// An image of a network that is being written.
#[derive(Clone)]
struct Image {
    name: String,
    channels: usize,
    /// Height and width.
    size: [usize; 2],
}

/// Writes a random network.
struct Writer {
    random: Numbers,
    body: String,
    images: Vec<Image>,
    count: usize,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let mut random = Numbers::new(seed);
        let channels = [3, 5, 16, 24][random.below(4)];
        let size = [5 + random.below(9), 5 + random.below(9)];
        let images = vec![Image { name: "x".to_string(), channels, size }];
        Writer { random, body: String::new(), images, count: 0 }
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn pick(&mut self) -> Image {
        let from = self.images.len().saturating_sub(4);
        let at = from + self.random.below(self.images.len() - from);
        self.images[at].clone()
    }

    /// A constant of random numbers that keep sums of `depth` products small.
    fn constant(&mut self, dims: &[usize], depth: usize) -> String {
        let name = self.name();
        let count = dims.iter().product();
        let scale = 1.5 / (depth.max(1) as f32).sqrt();
        let numbers = self.random.floats(count);
        let numbers: Vec<String> = numbers.iter().map(|x| (x * scale).to_string()).collect();
        let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
        let (dims, numbers) = (dims.join(", "), numbers.join(", "));
        let _ = writeln!(self.body, "{name} = Constant <value = float[{dims}] {{{numbers}}}> ()");
        name
    }

    fn add(&mut self, channels: usize, size: [usize; 2], node: &str) {
        let name = self.name();
        let _ = writeln!(self.body, "{name} = {node}");
        self.images.push(Image { name, channels, size });
    }

    fn conv(&mut self) {
        let x = self.pick();
        let depthwise = self.random.below(4) == 0;
        let kernel = [1, 1, 3, 3, 5][self.random.below(5)];
        let stride = if x.size[0].min(x.size[1]) > 6 { 1 + self.random.below(2) } else { 1 };
        let groups = match depthwise {
            true => x.channels,
            false if x.channels.is_multiple_of(4) && self.random.below(4) == 0 => 4,
            false => 1,
        };
        let channels =
            if depthwise { x.channels } else { [4, 8, 16, 20, 24, 40][self.random.below(6)] };
        let depth = x.channels / groups * kernel * kernel;
        let w = self.constant(&[channels, x.channels / groups, kernel, kernel], depth);
        let b = self.constant(&[channels], 1);
        let pad = kernel / 2;
        let size = x.size.map(|size| (size + 2 * pad - kernel) / stride + 1);
        let node = format!(
            "Conv <pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}], \
             group = {groups}> ({}, {w}, {b})",
            x.name
        );
        self.add(channels, size, &node);
    }

    fn function(&mut self) {
        let x = self.pick();
        let of = |op: &str| format!("{op} ({})", x.name);
        let node = match self.random.below(9) {
            0 => of("Relu"),
            1 => of("HardSwish"),
            2 => of("Sigmoid"),
            3 => of("Gelu"),
            4 => of("Tanh"),
            5 => of("Elu"),
            6 => {
                let slopes = self.constant(&[x.channels, 1, 1], 1);
                format!("PRelu ({}, {slopes})", x.name)
            }
            7 => {
                let by = self.constant(&[1, x.channels, 1, 1], 1);
                format!("Mul ({}, {by})", x.name)
            }
            _ => {
                let plane = self.constant(&[x.size[0], x.size[1]], 1);
                format!("Add ({}, {plane})", x.name)
            }
        };
        self.add(x.channels, x.size, &node);
    }

    /// A sum or product with another image of the same size, or with one pixel of each image.
    fn pair(&mut self) {
        let x = self.pick();
        let same = |y: &&Image| y.channels == x.channels && y.size == x.size;
        let others: Vec<Image> = self.images.iter().filter(same).cloned().collect();
        let other = others[self.random.below(others.len())].name.clone();
        let node = match self.random.below(3) {
            0 => format!("Add ({}, {other})", x.name),
            1 => format!("Sub ({other}, {})", x.name),
            _ => {
                let gate = self.name();
                let _ = writeln!(self.body, "{gate} = GlobalAveragePool ({other})");
                format!("Mul ({}, {gate})", x.name)
            }
        };
        self.add(x.channels, x.size, &node);
    }

    fn join(&mut self) {
        let x = self.pick();
        let alike: Vec<Image> = self.images.iter().filter(|y| y.size == x.size).cloned().collect();
        let count = 1 + self.random.below(3);
        let parts: Vec<Image> =
            (0..count).map(|_| alike[self.random.below(alike.len())].clone()).collect();
        let channels = x.channels + parts.iter().map(|part| part.channels).sum::<usize>();
        if channels > 120 {
            return;
        }
        let names: Vec<&str> =
            std::iter::once(&x).chain(&parts).map(|part| part.name.as_str()).collect();
        let names = names.join(", ");
        self.add(channels, x.size, &format!("Concat <axis = 1> ({names})"));
    }

    fn cut(&mut self) {
        let x = self.pick();
        if !x.channels.is_multiple_of(2) {
            return;
        }
        let (a, b) = (self.name(), self.name());
        let _ = writeln!(self.body, "{a}, {b} = Split <axis = 1, num_outputs = 2> ({})", x.name);
        for name in [a, b] {
            self.images.push(Image { name, channels: x.channels / 2, size: x.size });
        }
    }

    fn pool(&mut self) {
        let x = self.pick();
        let (kernel, stride) = [(2, 2), (3, 1), (3, 2), (5, 1)][self.random.below(4)];
        let pad = kernel / 2;
        if x.size.iter().any(|size| *size < 4) {
            return;
        }
        let size = x.size.map(|size| (size + 2 * pad - kernel) / stride + 1);
        let op = ["MaxPool", "AveragePool"][self.random.below(2)];
        let node = format!(
            "{op} <kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], \
             pads = [{pad}, {pad}, {pad}, {pad}]> ({})",
            x.name
        );
        self.add(x.channels, size, &node);
    }

    /// One pixel for each image, which lies in both orders.
    fn pool_all(&mut self) {
        let x = self.pick();
        let op = ["MaxPool", "AveragePool"][self.random.below(2)];
        let [height, width] = x.size;
        let node = format!("{op} <kernel_shape = [{height}, {width}]> ({})", x.name);
        self.add(x.channels, [1, 1], &node);
    }

    /// As ShuffleNet does: channels of all groups next to each other.
    fn shuffle(&mut self) {
        let x = self.pick();
        let groups = [2, 3, 4, 5, 8, 20][self.random.below(6)];
        if !x.channels.is_multiple_of(groups) {
            return;
        }
        let [height, width] = x.size;
        let (channels, of_group) = (x.channels, x.channels / groups);
        let names = [self.name(), self.name(), self.name(), self.name()];
        let [apart, joined, split, swapped] = &names;
        let sizes = [
            (apart, format!("5] {{0, {groups}, {of_group}, {height}, {width}}}")),
            (joined, format!("4] {{0, {channels}, {height}, {width}}}")),
        ];
        for (name, sizes) in sizes {
            let _ = writeln!(self.body, "{name} = Constant <value = int64[{sizes}> ()");
        }
        let _ = writeln!(self.body, "{split} = Reshape ({}, {apart})", x.name);
        let _ = writeln!(self.body, "{swapped} = Transpose <perm = [0, 2, 1, 3, 4]> ({split})");
        self.add(channels, x.size, &format!("Reshape ({swapped}, {joined})"));
    }

    fn normalize(&mut self) {
        let x = self.pick();
        let scale = self.constant(&[x.channels], 1);
        let bias = self.constant(&[x.channels], 1);
        let node = match self.random.below(5) {
            0 => format!("LRN <size = 5, alpha = 0.1> ({})", x.name),
            1 => format!("InstanceNormalization ({}, {scale}, {bias})", x.name),
            2 if x.channels.is_multiple_of(4) => {
                format!("GroupNormalization <num_groups = 4> ({}, {scale}, {bias})", x.name)
            }
            3 => {
                let ones = vec!["1.0"; x.channels].join(", ");
                let variance = self.name();
                let _ = writeln!(
                    self.body,
                    "{variance} = Constant <value = float[{}] {{{ones}}}> ()",
                    x.channels
                );
                format!("BatchNormalization ({}, {scale}, {bias}, {bias}, {variance})", x.name)
            }
            _ => format!("Softmax <axis = 1> ({})", x.name),
        };
        self.add(x.channels, x.size, &node);
    }

    fn resize(&mut self) {
        let x = self.pick();
        let mode = ["nearest", "linear", "cubic"][self.random.below(3)];
        if x.size.iter().any(|size| *size > 16) {
            return;
        }
        let scales = self.name();
        let _ = writeln!(self.body, "{scales} = Constant <value = float[4] {{1, 1, 2, 1.5}}> ()");
        let size = [x.size[0] * 2, x.size[1] * 3 / 2];
        self.add(x.channels, size, &format!("Resize <mode = \"{mode}\"> ({}, , {scales})", x.name));
    }

    /// As ConvNeXt does: features of pixels are normalised and multiplied.
    fn features(&mut self) {
        let x = self.pick();
        let scale = self.constant(&[x.channels], 1);
        let w = self.constant(&[x.channels, 12], x.channels);
        let (a, b, c) = (self.name(), self.name(), self.name());
        let _ = writeln!(self.body, "{a} = Transpose <perm = [0, 2, 3, 1]> ({})", x.name);
        let _ = writeln!(self.body, "{b} = LayerNormalization ({a}, {scale})");
        let _ = writeln!(self.body, "{c} = MatMul ({b}, {w})");
        self.add(12, x.size, &format!("Transpose <perm = [0, 3, 1, 2]> ({c})"));
    }

    /// As YOLO does: half of an image goes through steps that add to it, and all are joined.
    fn split_and_add(&mut self) {
        let x = self.pick();
        let half = [4, 8, 20][self.random.below(3)];
        let w = self.constant(&[2 * half, x.channels, 1, 1], x.channels);
        let (both, a, mut last) = (self.name(), self.name(), self.name());
        let _ = writeln!(self.body, "{both} = Conv ({}, {w})", x.name);
        let _ = writeln!(self.body, "{a}, {last} = Split <axis = 1, num_outputs = 2> ({both})");
        let mut joined = vec![a, last.clone()];
        for _ in 0..1 + self.random.below(3) {
            let w = self.constant(&[half, half, 3, 3], 9 * half);
            let (conv, function) = (self.name(), self.name());
            let _ = writeln!(self.body, "{conv} = Conv <pads = [1, 1, 1, 1]> ({last}, {w})");
            let _ = writeln!(self.body, "{function} = HardSwish ({conv})");
            last = match self.random.below(3) {
                0 => function,
                _ => {
                    let sum = self.name();
                    let _ = writeln!(self.body, "{sum} = Add ({last}, {function})");
                    sum
                }
            };
            joined.push(last.clone());
        }
        let mut channels = half * joined.len();
        let first = &self.images[0];
        if first.size == x.size && self.random.below(3) == 0 {
            joined.push(first.name.clone());
            channels += first.channels;
        }
        self.add(channels, x.size, &format!("Concat <axis = 1> ({})", joined.join(", ")));
    }

    /// The graph, whose outputs are the last image, all of one in rows, and its means.
    fn finish(mut self) -> String {
        for _ in 0..4 + self.random.below(10) {
            match self.random.below(17) {
                0..4 => self.conv(),
                4 | 5 => self.function(),
                6 => self.pair(),
                7 => self.join(),
                8 => self.cut(),
                9 => self.pool(),
                10 => self.normalize(),
                11 => self.resize(),
                12 => self.split_and_add(),
                13 | 14 => self.shuffle(),
                15 => self.pool_all(),
                _ => self.features(),
            }
        }
        self.conv();
        let [x, y, z] = [self.pick(), self.pick(), self.pick()];
        let first = &self.images[0];
        format!(
            "g (float[n, {}, {}, {}] x) => (a, b, c) <int64[2] axes = {{2, 3}}> {{\n{}\
             a = Identity ({})\nb = Flatten ({})\nc = ReduceMean <keepdims = 0> ({}, axes)\n}}",
            first.channels, first.size[0], first.size[1], self.body, x.name, y.name, z.name
        )
    }
}

#[test]
fn random_networks_give_the_same_as_in_rows() {
    let (mut last, mut shuffled) = (0, 0);
    for seed in 1..=150 {
        let both = Both::new(&Writer::new(seed).finish());
        both.agree(&[("n", 1)]);
        both.agree(&[("n", 3)]);
        both.agree(&[("n", 0)]);
        last += usize::from(both.listing().contains("over pixels"));
        shuffled += usize::from(both.listing().contains("shuffle"));
    }
    assert!(last > 50, "{last} networks have steps over pixels");
    assert!(shuffled > 20, "{shuffled} networks shuffle channels in one step");
}

#[test]
fn sizes_with_other_names_may_be_the_same_or_broadcast() {
    let graph = "g (float[a, 8, c, d] x, float[e, f, g, h] z) => (y) {
        ws = Constant <value = int64[4] {16, 8, 3, 3}> ()
        w = ConstantOfShape <value = float[1] {0.1}> (ws)
        r = Conv (x, w) s = Add (r, z) t = Relu (s) y = Mul (z, t) }";
    let both = Both::new(graph);
    for (e, f, h) in [(2, 16, 6), (1, 1, 6), (2, 16, 1), (1, 16, 6)] {
        both.agree(&[("a", 2), ("c", 8), ("d", 8), ("e", e), ("f", f), ("g", 6), ("h", h)]);
    }
}

#[test]
fn images_of_one_pixel_and_of_none_lie_in_both_orders() {
    let chains = [
        "b = LRN <size = 3> (a)",
        "b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)",
        "b = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (a)",
        "b = Softmax <axis = 1> (a)",
        "b = ReduceSum (a, axes)",
        "b = HardSwish (a)",
        "p = Conv <pads = [1, 1, 1, 1]> (a, w) b = Add (p, a)",
        "p = LRN <size = 3> (a) b = Concat <axis = 1> (a, p, a)",
    ];
    for (channels, chain) in [16, 64].into_iter().flat_map(|c| chains.map(|chain| (c, chain))) {
        let both = Both::new(&format!(
            "g (float[n, {channels}, h, h] x) => (y, b) <int64[2] axes = {{2, 3}}> {{
                ws = Constant <value = int64[4] {{{channels}, {channels}, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.1}}> (ws)
                a = Conv <pads = [1, 1, 1, 1]> (x, w) {chain}
                vs = Constant <value = int64[4] {{80, {}, 3, 3}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                y = Conv <auto_pad = \"SAME_UPPER\"> (b, v) }}",
            if chain.contains("Concat") { 3 * channels } else { channels }
        ));
        for (n, h) in [(1, 1), (3, 1), (0, 1), (2, 5), (0, 5)] {
            both.agree(&[("n", n), ("h", h)]);
        }
    }
}

#[test]
fn windows_over_whole_images_read_either_order() {
    for (node, has_loop) in [
        ("AveragePool <kernel_shape = [6, 5]> (a)", true),
        ("MaxPool <kernel_shape = [6, 5]> (a)", true),
        ("MaxPool <kernel_shape = [7, 7], pads = [1, 1, 0, 1]> (a)", true),
        ("Resize <mode = \"linear\", axes = [2, 3]> (a, , , one)", false),
    ] {
        let both = Both::new(&format!(
            "g (float[n, 16, 6, 5] x) => (y) <int64[2] one = {{1, 1}}> {{
                ws = Constant <value = int64[4] {{24, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.1}}> (ws)
                a = Conv <pads = [1, 1, 1, 1]> (x, w) b = {node} y = Flatten (b) }}"
        ));
        both.agree(&[("n", 2)]);
        both.agree(&[("n", 0)]);
        let listing = both.listing();
        assert_eq!(listing.contains("over pixels"), has_loop, "{listing}");
        assert!(!has_loop || !listing.contains("reorder"), "{listing}");
    }
}

#[test]
fn a_join_whose_parts_lie_in_a_later_one_may_be_read_for_that() {
    let weight = |name: &str, dims: &str| {
        format!(
            "{name}s = Constant <value = int64[4] {{{dims}}}> ()
            {name} = ConstantOfShape <value = float[1] {{0.1}}> ({name}s) "
        )
    };
    let both = Both::new(&format!(
        "g (float[n, 16, 6, 6] x) => (y) {{ {}{}{}
            a = Conv (x, w) b = Conv (a, w) j = Concat <axis = 1> (a, b)
            c = Conv (j, v) r = Concat <axis = 1> (a, b, c) y = Conv (r, u) }}",
        weight("w", "16, 16, 1, 1"),
        weight("v", "16, 32, 1, 1"),
        weight("u", "24, 48, 1, 1"),
    ));
    both.agree(&[("n", 2)]);
}

#[test]
fn bits_do_not_depend_on_threads() {
    for seed in 1..=20 {
        let text = both_ways::whole(&Writer::new(seed).finish());
        let sessions = [1, 2, 3, 8]
            .map(|threads| both_ways::compile(&text, sardonyx_runtime::Optimization::All, threads));
        let given = inputs(&sessions[0], &[("n", 2)], seed);
        let first = sessions[0].run(given.clone()).unwrap();
        for session in &sessions[1..] {
            let outputs = session.run(given.clone()).unwrap();
            for ((name, a), (_, b)) in first.iter().zip(&outputs) {
                let (a, b) = (a.as_tensor().unwrap(), b.as_tensor().unwrap());
                assert!(a.bit_eq(b), "{name} of\n{text}");
            }
        }
    }
}

/// Bytes that the join of a network copies.
fn joined_bytes(both: &Both, sizes: &[(&str, usize)]) -> u64 {
    let given = both.inputs(sizes, 1);
    let types: Vec<_> = given
        .iter()
        .map(|(_, value)| value.as_tensor().unwrap())
        .map(|x| Some(Type::tensor(x.data_type(), x.dims().iter().copied())))
        .collect();
    let details = both.fused.details(&types).unwrap();
    let steps = both.fused.steps();
    let mut joins = steps.iter().zip(&details.steps).filter(|(step, _)| step.op == "Concat");
    let (_, join) = joins.next().unwrap();
    if join.is_view { 0 } else { join.read_bytes.unwrap() }
}

#[test]
fn what_is_computed_from_another_part_alone_is_copied_when_joined() {
    let conv = |y: &str, x: &str| format!("{y} = Conv <pads = [1, 1, 1, 1]> ({x}, w)\n");
    let block = |y: &str, x: &str| {
        let [c, d] = ["c", "d"].map(|of| format!("{of}{y}"));
        format!("{}{}{y} = Add ({x}, {d})\n", conv(&c, x), conv(&d, &c))
    };
    let plane = 4 * 16 * 10 * 12;
    for (parts, body, copied) in [
        (3, conv("c", "b") + &conv("e", "c"), 0),
        (3, conv("e", "b"), plane),
        (3, block("e", "b"), plane),
        (4, block("e", "b") + &block("f", "e"), plane),
        (5, block("e", "b") + &block("f", "e") + &block("g", "f"), 2 * plane),
        (4, block("e", "b") + &conv("f", "e"), plane),
    ] {
        let names = ["a", "b", "e", "f", "g"][..parts].join(", ");
        let both = Both::new(&format!(
            "g (float[n, 16, h, k] x) => (y) {{
                us = Constant <value = int64[4] {{32, 16, 1, 1}}> ()
                u = ConstantOfShape <value = float[1] {{0.1}}> (us)
                ws = Constant <value = int64[4] {{16, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.02}}> (ws)
                vs = Constant <value = int64[4] {{8, {}, 1, 1}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                s = Conv (x, u) a, b = Split <axis = 1, num_outputs = 2> (s)
                {body} j = Concat <axis = 1> ({names}) y = Conv (j, v) }}",
            16 * parts
        ));
        assert_eq!(joined_bytes(&both, &[("n", 2), ("h", 10), ("k", 12)]), 2 * copied, "{names}");
        for (n, h) in [(1, 10), (2, 5), (1, 1)] {
            both.agree(&[("n", n), ("h", h), ("k", 12)]);
        }
    }
}

#[test]
fn what_cannot_be_a_part_is_copied_when_joined() {
    let plane = 4 * 16 * 10 * 12;
    for (count, parts, copied) in [
        (4, "c, d, c, d", 4 * plane),
        (3, "c, d, c", 2 * plane),
        (3, "x, c, d", plane),
        (3, "e, c, d", 2 * plane),
    ] {
        let both = Both::new(&format!(
            "g (float[n, 16, h, k] x) => (y) {{
                ws = Constant <value = int64[4] {{16, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.02}}> (ws)
                vs = Constant <value = int64[4] {{8, {}, 1, 1}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                c = Conv <pads = [1, 1, 1, 1]> (x, w)
                d = Conv <pads = [1, 1, 1, 1]> (c, w)
                e = Add (c, d)
                j = Concat <axis = 1> ({parts}) y = Conv (j, v) }}",
            16 * count
        ));
        both.agree(&[("n", 1), ("h", 10), ("k", 12)]);
        let found = joined_bytes(&both, &[("n", 1), ("h", 10), ("k", 12)]);
        assert_eq!(found, copied, "{parts}");
    }
}
