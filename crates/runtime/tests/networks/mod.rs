//! Generator of random networks over images, as texts of graphs.

use std::collections::HashSet;
use std::fmt::{Display, Write};

use crate::both_ways::Numbers;

/// Number of images whose spatial axes have size 1 for every input, such as results of
/// GlobalAveragePool.
const ONE_PIXEL: usize = usize::MAX;

/// Maximum number of elements of an image, so that a network takes milliseconds.
const MOST_ELEMENTS: usize = 6_000;

/// Graph and sizes for which it runs.
pub(crate) struct Network {
    pub(crate) graph: String,
    /// Number for each symbolic size of the inputs.
    pub(crate) sizes: Vec<(String, usize)>,
}

/// Image of a network that is being written.
#[derive(Clone)]
struct Image {
    name: String,
    channels: usize,
    /// Spatial axes, for the sizes of [`Network::sizes`].
    size: Vec<usize>,
    /// Number of the function from the sizes of the input to those of this image: images of the
    /// same number have equal sizes whatever the input has.
    spaced: usize,
}

/// Sliding window over an image: its attributes, and the size of the result.
struct Window {
    kernel: Vec<usize>,
    attributes: String,
    size: Vec<usize>,
    /// Whether the result has the size of the image for every input.
    keeps: bool,
}

/// Parameters of a family of networks.
struct Family {
    /// Numbers of channels of the input.
    inputs: &'static [usize],
    /// Numbers of output channels of convolutions.
    outputs: &'static [usize],
    /// Whether the spatial axes of the inputs are symbolic, of any rank, and small; windows have
    /// any form then.
    is_open: bool,
}

/// Family of images of 5 to 13 rows and columns.
const CLOSED: Family =
    Family { inputs: &[3, 5, 16, 24], outputs: &[4, 8, 16, 20, 24, 40], is_open: false };

/// Family of images of 1 to 3 axes with symbolic sizes.
const OPEN: Family = Family {
    inputs: &[1, 2, 3, 4, 5, 8, 12, 16, 17, 24],
    outputs: &[1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 33],
    is_open: true,
};

/// Writer of a random network.
struct Writer {
    random: Numbers,
    family: &'static Family,
    body: String,
    images: Vec<Image>,
    count: usize,
    /// Space of an image, operation on it, and resulting space: numbers like [`Image::spaced`].
    spaces: Vec<(usize, String, usize)>,
    /// Whether the network reads a mask of one channel.
    reads_mask: bool,
}

/// Writes the network of a seed over planes of known sizes, with a symbolic number of images `n`.
pub(crate) fn closed_graph(seed: u64) -> String {
    Writer::new(seed, &CLOSED).finish().graph
}

/// Writes the network of a seed over images of 1 to 3 axes of symbolic sizes.
pub(crate) fn open_network(seed: u64) -> Network {
    Writer::new(seed, &OPEN).finish()
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Keeps the nodes of a body that some values depend on. Others could contradict the sizes of a
/// run, which not all sessions detect.
fn keep_needed(body: &str, values: &[&str]) -> String {
    let mut wanted: HashSet<&str> = values.iter().copied().collect();
    let mut kept: Vec<&str> = Vec::new();
    for line in body.lines().rev() {
        let (made, node) = line.split_once(" = ").unwrap_or_default();
        if made.split(", ").any(|name| wanted.contains(name)) {
            let (_, read) = node.rsplit_once('(').unwrap_or_default();
            wanted.extend(read.trim_end_matches(')').split(", ").map(str::trim));
            kept.push(line);
        }
    }
    kept.iter().rev().map(|line| format!("{line}\n")).collect()
}

impl Writer {
    fn new(seed: u64, family: &'static Family) -> Writer {
        let mut random = Numbers::new(seed);
        let channels = family.inputs[random.number_below(family.inputs.len())];
        let size = if family.is_open {
            let rank = [1, 2, 2, 3][random.number_below(4)];
            let is_pixel = random.number_below(4) == 0;
            let sizes = [1, 1, 2, 3, 4, 5, 7, 9];
            let most = if rank == 3 { 6 } else { sizes.len() };
            let axes =
                (0..rank).map(|_| if is_pixel { 1 } else { sizes[random.number_below(most)] });
            axes.collect()
        } else {
            vec![5 + random.number_below(9), 5 + random.number_below(9)]
        };
        let images = vec![Image { name: "x".to_string(), channels, size, spaced: 0 }];
        let (body, spaces) = (String::new(), Vec::new());
        Writer { random, family, body, images, count: 0, spaces, reads_mask: false }
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.random.number_below(items.len())]
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.random.number_below(times) == 0
    }

    /// Writes a node of one output and returns its name.
    fn node(&mut self, node: &str) -> String {
        let name = self.name();
        let _ = writeln!(self.body, "{name} = {node}");
        name
    }

    fn pick(&mut self) -> Image {
        let from = self.images.len().saturating_sub(4);
        let at = from + self.random.number_below(self.images.len() - from);
        self.images[at].clone()
    }

    /// Writes a constant of random numbers that keep sums of `depth` products small.
    fn constant(&mut self, dims: &[usize], depth: usize) -> String {
        let scale = 1.5 / (depth.max(1) as f32).sqrt();
        let numbers = self.random.floats(dims.iter().product());
        let numbers: Vec<f32> = numbers.iter().map(|x| x * scale).collect();
        self.floats(dims, &numbers)
    }

    fn floats(&mut self, dims: &[usize], numbers: &[f32]) -> String {
        let dims = if dims.is_empty() { String::new() } else { format!("[{}]", list(dims)) };
        self.node(&format!("Constant <value = float{dims} {{{}}}> ()", list(numbers)))
    }

    fn integers<T: Display>(&mut self, numbers: &[T]) -> String {
        let (count, numbers) = (numbers.len(), list(numbers));
        self.node(&format!("Constant <value = int64[{count}] {{{numbers}}}> ()"))
    }

    /// Returns the dimensions of a constant with a number for each channel of an image.
    fn by_channel(x: &Image) -> Vec<usize> {
        let mut dims = vec![1; x.size.len() + 1];
        dims[0] = x.channels;
        dims
    }

    /// Returns the number of the space that `done` makes of an image's.
    fn space(&mut self, from: &Image, done: &str) -> usize {
        let known = self.spaces.iter().find(|(of, by, _)| *of == from.spaced && by == done);
        if let Some((_, _, to)) = known {
            return *to;
        }
        let to = self.spaces.len() + 1;
        self.spaces.push((from.spaced, done.to_string(), to));
        to
    }

    fn add(&mut self, image: Image, node: &str) {
        if image.channels * image.size.iter().product::<usize>() <= MOST_ELEMENTS {
            let name = self.node(node);
            self.images.push(Image { name, ..image });
        }
    }

    /// Adds the result of a node that keeps the size of its image.
    fn add_alike(&mut self, x: Image, node: &str) {
        self.add(x, node);
    }

    /// Adds the result of a window over an image.
    fn add_window(&mut self, x: &Image, channels: usize, window: Window, node: &str) {
        let spaced = if window.keeps { x.spaced } else { self.space(x, &window.attributes) };
        self.add(Image { name: String::new(), channels, size: window.size, spaced }, node);
    }

    /// Makes a window with one of some kernels at each axis, which fits an image.
    fn window(
        &mut self,
        x: &Image,
        kernels: &[usize],
        most_pad: fn(usize, usize) -> usize,
    ) -> Window {
        let is_open = self.family.is_open;
        let first = self.one_of(kernels);
        let (mut kernel, mut strides, mut dilations) = (Vec::new(), Vec::new(), Vec::new());
        let (mut before, mut after, mut size) = (Vec::new(), Vec::new(), Vec::new());
        let is_same = is_open && self.once_in(6);
        let mut keeps = true;
        for axis in &x.size {
            let mut k = if is_open && self.once_in(4) { self.one_of(kernels) } else { first };
            let mut dilation = if is_open && !is_same && self.once_in(5) { 2 } else { 1 };
            let mut pads = [k * dilation / 2; 2];
            if is_open && self.once_in(4) {
                pads = [0, 1].map(|_| self.random.number_below(most_pad(k, dilation) + 1));
            }
            pads = pads.map(|pad| pad.min(most_pad(k, dilation)));
            if !is_same && axis + pads[0] + pads[1] < (k - 1) * dilation + 1 {
                (k, dilation, pads) = (1, 1, [0, 0]);
            }
            let may_step = *axis > 6 || is_open && self.once_in(4);
            let stride = if may_step { 1 + self.random.number_below(2) } else { 1 };
            size.push(if is_same {
                axis.div_ceil(stride)
            } else {
                (axis + pads[0] + pads[1] - (k - 1) * dilation - 1) / stride + 1
            });
            keeps &= stride == 1 && (is_same || pads[0] + pads[1] == (k - 1) * dilation);
            kernel.push(k);
            strides.push(stride);
            dilations.push(dilation);
            before.push(pads[0]);
            after.push(pads[1]);
        }
        before.extend(after);
        let mut attributes = if is_same {
            format!("auto_pad = \"{}\"", self.one_of(&["SAME_UPPER", "SAME_LOWER"]))
        } else {
            format!("pads = [{}]", list(&before))
        };
        if strides.iter().any(|stride| *stride != 1) {
            let _ = write!(attributes, ", strides = [{}]", list(&strides));
        }
        if dilations.iter().any(|dilation| *dilation != 1) {
            let _ = write!(attributes, ", dilations = [{}]", list(&dilations));
        }
        let _ = write!(attributes, ", kernel_shape = [{}]", list(&kernel));
        Window { kernel, attributes, size, keeps }
    }

    /// Picks the number of groups for a convolution.
    fn groups(&mut self, channels: usize) -> usize {
        match self.random.number_below(8) {
            0 | 1 => channels,
            2 | 3 => {
                let fit: Vec<usize> =
                    [2, 3, 4, 8].into_iter().filter(|by| channels.is_multiple_of(*by)).collect();
                if fit.is_empty() { 1 } else { self.one_of(&fit) }
            }
            _ => 1,
        }
    }

    /// Writes weights of a convolution, and a bias in most cases, as inputs of a node.
    fn weights(&mut self, dims: &[usize], out_channels: usize, depth: usize) -> String {
        let w = self.constant(dims, depth);
        if self.once_in(4) { w } else { format!("{w}, {}", self.constant(&[out_channels], 1)) }
    }

    fn conv(&mut self) {
        let x = self.pick();
        let window = self.window(&x, &[1, 1, 3, 3, 5], |k, _| k / 2 + 1);
        let groups = self.groups(x.channels);
        let channels = match groups {
            1 => self.one_of(self.family.outputs),
            groups if groups == x.channels => x.channels * self.one_of(&[1, 1, 1, 2]),
            groups => groups * (1 + self.random.number_below(5)),
        };
        let of_group = x.channels / groups;
        let depth = of_group * window.kernel.iter().product::<usize>();
        let dims: Vec<usize> =
            [channels, of_group].into_iter().chain(window.kernel.clone()).collect();
        let weights = self.weights(&dims, channels, depth);
        let attributes = &window.attributes;
        let node = format!("Conv <{attributes}, group = {groups}> ({}, {weights})", x.name);
        self.add_window(&x, channels, window, &node);
    }

    fn conv_transpose(&mut self) {
        let x = self.pick();
        let groups = self.groups(x.channels);
        let of_group = 1 + self.random.number_below(6);
        let channels = groups * of_group;
        let (mut kernel, mut strides, mut more) = (Vec::new(), Vec::new(), Vec::new());
        let (mut before, mut after, mut size) = (Vec::new(), Vec::new(), Vec::new());
        for axis in &x.size {
            let k = self.one_of(&[1, 2, 2, 3, 4]);
            let stride = self.one_of(&[1, 2, 2, 3]);
            let extra = if stride > 1 && self.once_in(4) { 1 } else { 0 };
            let all = (axis - 1) * stride + k + extra;
            let mut pads = [0, 1].map(|_| self.random.number_below(k / 2 + 1));
            if all <= pads[0] + pads[1] {
                pads = [0, 0];
            }
            size.push(all - pads[0] - pads[1]);
            kernel.push(k);
            strides.push(stride);
            more.push(extra);
            before.push(pads[0]);
            after.push(pads[1]);
        }
        before.extend(after);
        let dims: Vec<usize> = [x.channels, of_group].into_iter().chain(kernel.clone()).collect();
        let depth = x.channels / groups * kernel.iter().product::<usize>();
        let weights = self.weights(&dims, channels, depth);
        let attributes = format!(
            "kernel_shape = [{}], strides = [{}], pads = [{}], output_padding = [{}]",
            list(&kernel),
            list(&strides),
            list(&before),
            list(&more)
        );
        let node =
            format!("ConvTranspose <{attributes}, group = {groups}> ({}, {weights})", x.name);
        let window = Window { kernel, attributes, size, keeps: false };
        self.add_window(&x, channels, window, &node);
    }

    fn function(&mut self) {
        let x = self.pick();
        let of = |op: &str| format!("{op} ({})", x.name);
        let node = match self.random.number_below(if self.family.is_open { 26 } else { 9 }) {
            0 => of("Relu"),
            1 => of("HardSwish"),
            2 => of("Sigmoid"),
            3 => of("Gelu"),
            4 => of("Tanh"),
            5 => of("Elu"),
            6 => {
                let slopes = self.constant(&Writer::by_channel(&x), 1);
                format!("PRelu ({}, {slopes})", x.name)
            }
            7 => {
                let dims: Vec<usize> = [1].into_iter().chain(Writer::by_channel(&x)).collect();
                let by = self.constant(&dims, 1);
                format!("Mul ({}, {by})", x.name)
            }
            8 if !self.family.is_open => {
                let plane = self.constant(&x.size.clone(), 1);
                format!("Add ({}, {plane})", x.name)
            }
            8 => {
                let by = self.constant(&[1], 1);
                format!("Add ({}, {by})", x.name)
            }
            9 => of("LeakyRelu <alpha = 0.2>"),
            10 => of("HardSigmoid"),
            11 => of("Softplus"),
            12 => of("Softsign"),
            13 => of("Mish"),
            14 => of("Abs"),
            15 => of("Neg"),
            16 => of("Erf"),
            17 => of("Selu"),
            18 => of("ThresholdedRelu <alpha = 0.0>"),
            19 => {
                let [low, high] = [self.floats(&[], &[-0.5]), self.floats(&[], &[1.25])];
                format!("Clip ({}, {low}, {high})", x.name)
            }
            20 => {
                // Swish as exporters decompose it.
                let gate = self.node(&of("Sigmoid"));
                format!("Mul ({}, {gate})", x.name)
            }
            21 => {
                let by = self.constant(&Writer::by_channel(&x), 1);
                let [one, size] = [self.floats(&[], &[1.0]), self.node(&format!("Abs ({by})"))];
                let by = self.node(&format!("Add ({size}, {one})"));
                format!("Div ({}, {by})", x.name)
            }
            22 => {
                let two = self.floats(&[], &[2.0]);
                let bounded = self.node(&of("Tanh"));
                format!("Pow ({bounded}, {two})")
            }
            23 => {
                let bounded = self.node(&of("Tanh"));
                format!("Exp ({bounded})")
            }
            24 => {
                let by = self.constant(&Writer::by_channel(&x), 1);
                let op = self.one_of(&["Max", "Min", "Sub"]);
                format!("{op} ({}, {by})", x.name)
            }
            _ => {
                let zero = self.floats(&[], &[0.0]);
                let [is_more, half] = [format!("Greater ({}, {zero})", x.name), of("Neg")]
                    .map(|node| self.node(&node));
                format!("Where ({is_more}, {}, {half})", x.name)
            }
        };
        self.add_alike(x, &node);
    }

    /// Picks another image of equal size, mostly one that has it for every input.
    fn pick_alike(&mut self, x: &Image, same_channels: bool) -> Image {
        let exact = !self.once_in(6);
        let fits = |y: &&Image| {
            (!same_channels || y.channels == x.channels)
                && (y.spaced == x.spaced || !exact && y.size == x.size)
        };
        let others: Vec<Image> = self.images.iter().filter(fits).cloned().collect();
        others[self.random.number_below(others.len())].clone()
    }

    /// Adds a sum or product with another image of equal size, or with one pixel of each image.
    fn pair(&mut self) {
        let x = self.pick();
        let other = self.pick_alike(&x, true).name;
        let name = &x.name;
        let node = match self.random.number_below(if self.family.is_open { 7 } else { 3 }) {
            0 => format!("Add ({name}, {other})"),
            1 => format!("Sub ({other}, {name})"),
            2 => {
                let gate = self.node(&format!("GlobalAveragePool ({other})"));
                format!("Mul ({name}, {gate})")
            }
            3 => format!("Mul ({name}, {other})"),
            4 => format!("Max ({name}, {other})"),
            5 => {
                let gate = self.node(&format!("GlobalMaxPool ({other})"));
                let gate = self.node(&format!("Sigmoid ({gate})"));
                format!("Mul ({gate}, {name})")
            }
            _ => {
                let third = self.pick_alike(&x, true).name;
                format!("Sum ({name}, {other}, {third})")
            }
        };
        self.add_alike(x, &node);
    }

    /// Adds a product with a mask of one channel: an input of the network, or computed.
    fn mask(&mut self) {
        let x = self.pick();
        let node = match x.spaced {
            0 => {
                self.reads_mask = true;
                format!("Mul ({}, m)", x.name)
            }
            _ => {
                let axis = self.integers(&[1]);
                let op = self.one_of(&["ReduceMax", "ReduceMean", "ReduceSum", "ReduceL2"]);
                let mask = self.node(&format!("{op} ({}, {axis})", x.name));
                let mask = self.node(&format!("Sigmoid ({mask})"));
                let channels = 1;
                self.images.push(Image { name: mask.clone(), channels, ..x.clone() });
                let op = self.one_of(&["Mul", "Add", "Sub"]);
                format!("{op} ({}, {mask})", x.name)
            }
        };
        self.add_alike(x, &node);
    }

    fn join(&mut self) {
        let x = self.pick();
        let count = 1 + self.random.number_below(3);
        let parts: Vec<Image> = (0..count).map(|_| self.pick_alike(&x, false)).collect();
        let channels = x.channels + parts.iter().map(|part| part.channels).sum::<usize>();
        if channels > 120 {
            return;
        }
        let names: Vec<&str> =
            std::iter::once(&x).chain(&parts).map(|part| part.name.as_str()).collect();
        let node = format!("Concat <axis = 1> ({})", names.join(", "));
        self.add_alike(Image { channels, ..x }, &node);
    }

    fn cut(&mut self) {
        let x = self.pick();
        if !x.channels.is_multiple_of(2) {
            return;
        }
        let (a, b) = (self.name(), self.name());
        let _ = writeln!(self.body, "{a}, {b} = Split <axis = 1, num_outputs = 2> ({})", x.name);
        for name in [a, b] {
            self.images.push(Image { name, channels: x.channels / 2, ..x.clone() });
        }
    }

    /// Adds a slice of the channels, or every other pixel of an axis.
    fn slice(&mut self) {
        let x = self.pick();
        let axis = self.random.number_below(x.size.len() + 1);
        let (start, end, step, channels, mut size) = match axis {
            0 => {
                let start = self.random.number_below(x.channels);
                let end = start + 1 + self.random.number_below(x.channels - start);
                (start, end, 1, end - start, x.size.clone())
            }
            _ => (0, i32::MAX as usize, 2, x.channels, x.size.clone()),
        };
        if axis > 0 {
            size[axis - 1] = size[axis - 1].div_ceil(2);
        }
        let spaced = match (axis, x.spaced) {
            (0, spaced) | (_, spaced @ ONE_PIXEL) => spaced,
            _ => self.space(&x, &format!("half of {axis}")),
        };
        let [start, end, axis, step] = [start, end, axis + 1, step].map(|n| self.integers(&[n]));
        let node = format!("Slice ({}, {start}, {end}, {axis}, {step})", x.name);
        self.add(Image { name: String::new(), channels, size, spaced }, &node);
    }

    fn pool(&mut self) {
        let x = self.pick();
        if !self.family.is_open && x.size.iter().any(|size| *size < 4) {
            return;
        }
        let ops: &[&str] = if self.family.is_open {
            &["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"]
        } else {
            &["MaxPool", "AveragePool"]
        };
        let op = self.one_of(ops);
        let mut window = self.window(&x, &[2, 3, 3, 5], |k, dilation| {
            // Dilated taps may all lie in the padding, where the maximum is undefined.
            if dilation == 1 { k / 2 } else { 0 }
        });
        if self.family.is_open && op == "AveragePool" && self.once_in(2) {
            window.attributes += ", count_include_pad = 1";
        }
        let node = format!("{op} <{}> ({})", window.attributes, x.name);
        let channels = x.channels;
        self.add_window(&x, channels, window, &node);
    }

    /// Pools each image to one pixel, which has both orders.
    fn pool_all(&mut self) {
        let x = self.pick();
        let node = if self.family.is_open {
            let ops = if self.once_in(8) {
                ["GlobalLpPool"; 2]
            } else {
                ["GlobalAveragePool", "GlobalMaxPool"]
            };
            format!("{} ({})", self.one_of(&ops), x.name)
        } else {
            let op = self.one_of(&["MaxPool", "AveragePool"]);
            format!("{op} <kernel_shape = [{}]> ({})", list(&x.size), x.name)
        };
        let size = vec![1; x.size.len()];
        self.add(Image { size, spaced: ONE_PIXEL, ..x }, &node);
    }

    /// Adds a reduction of one or all axes, kept with size 1.
    fn reduce(&mut self) {
        let x = self.pick();
        let axes: Vec<usize> = (2..x.size.len() + 2).collect();
        let op = self.one_of(&["ReduceMean", "ReduceMax", "ReduceL2"]);
        let axes = self.integers(&axes);
        let node = format!("{op} ({}, {axes})", x.name);
        let size = vec![1; x.size.len()];
        self.add(Image { size, spaced: ONE_PIXEL, ..x }, &node);
    }

    /// Adds a shuffle as in ShuffleNet, which interleaves the channels of all groups.
    fn shuffle(&mut self) {
        let x = self.pick();
        let groups = self.one_of(&[2, 3, 4, 5, 8, 20]);
        if !x.channels.is_multiple_of(groups) {
            return;
        }
        let of_group = x.channels / groups;
        let (apart, joined, perm) = if self.family.is_open {
            let apart = self.integers(&[0, groups as i64, of_group as i64, -1]);
            (apart, self.node(&format!("Shape ({})", x.name)), (0..4).collect())
        } else {
            let spatial = || x.size.iter().copied();
            let apart: Vec<usize> = [0, groups, of_group].into_iter().chain(spatial()).collect();
            let joined: Vec<usize> = [0, x.channels].into_iter().chain(spatial()).collect();
            let perm: Vec<usize> = (0..x.size.len() + 3).collect();
            (self.integers(&apart), self.integers(&joined), perm)
        };
        let mut perm: Vec<usize> = perm;
        perm.swap(1, 2);
        // A size of 0 is literal, and does not copy another axis.
        let zeros = if self.family.is_open { "<allowzero = 1>" } else { "" };
        let split = self.node(&format!("Reshape ({}, {apart})", x.name));
        let swapped = self.node(&format!("Transpose <perm = [{}]> ({split})", list(&perm)));
        self.add_alike(x, &format!("Reshape {zeros} ({swapped}, {joined})"));
    }

    fn normalize(&mut self) {
        let x = self.pick();
        let scale = self.constant(&[x.channels], 1);
        let bias = self.constant(&[x.channels], 1);
        let node = match self.random.number_below(if self.family.is_open { 7 } else { 5 }) {
            0 if x.size.len() == 2 => format!("LRN <size = 5, alpha = 0.1> ({})", x.name),
            // For one pixel it divides rounding errors by the root of epsilon.
            1 if x.size.iter().product::<usize>() > 1 => {
                let epsilon = if self.family.is_open { "<epsilon = 0.1>" } else { "" };
                format!("InstanceNormalization {epsilon} ({}, {scale}, {bias})", x.name)
            }
            2 if x.channels.is_multiple_of(4) && x.channels > 4 => {
                let epsilon = if self.family.is_open { ", epsilon = 0.1" } else { "" };
                let attributes = format!("num_groups = 4{epsilon}");
                format!("GroupNormalization <{attributes}> ({}, {scale}, {bias})", x.name)
            }
            3 | 5 => {
                let variance = self.floats(&[x.channels], &vec![1.0; x.channels]);
                format!("BatchNormalization ({}, {scale}, {bias}, {bias}, {variance})", x.name)
            }
            6 => {
                let op = self.one_of(&["Softmax", "LogSoftmax"]);
                format!("{op} <axis = -1> ({})", x.name)
            }
            _ => format!("Softmax <axis = 1> ({})", x.name),
        };
        self.add_alike(x, &node);
    }

    fn resize(&mut self) {
        let x = self.pick();
        if x.size.iter().any(|size| *size > 16) {
            return;
        }
        let rank = x.size.len();
        let modes: &[&str] =
            if rank == 2 { &["nearest", "linear", "cubic"] } else { &["nearest", "linear"] };
        let mode = self.one_of(modes);
        let (by, mut attributes): (Vec<f32>, _) = if self.family.is_open {
            let forms = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"];
            let form = self.one_of(&forms);
            // ONNX Runtime aligns corners of the exact size, not of the rounded one.
            let part = if form == "align_corners" { 2.0 } else { 1.5 };
            let by = (0..rank).map(|_| self.one_of(&[1.0, 2.0, 2.0, part, 3.0])).collect();
            (by, format!(", coordinate_transformation_mode = \"{form}\""))
        } else {
            (vec![2.0, 1.5], String::new())
        };
        if mode == "nearest" && self.family.is_open {
            // Coordinates between two pixels would depend on rounding.
            attributes = ", coordinate_transformation_mode = \"asymmetric\", \
                          nearest_mode = \"floor\""
                .to_string();
        }
        let size: Vec<usize> =
            x.size.iter().zip(&by).map(|(size, by)| (*size as f32 * by) as usize).collect();
        let all: Vec<f32> = [1.0, 1.0].into_iter().chain(by).collect();
        let scales = self.floats(&[rank + 2], &all);
        let node = format!("Resize <mode = \"{mode}\"{attributes}> ({}, , {scales})", x.name);
        let spaced = self.space(&x, &format!("times {}", list(&all)));
        self.add(Image { size, spaced, ..x }, &node);
    }

    fn pad(&mut self) {
        let x = self.pick();
        let rank = x.size.len();
        let mode = self.one_of(&["constant", "constant", "edge", "reflect"]);
        let mut pads = vec![0; 2 * (rank + 2)];
        for (axis, size) in x.size.iter().enumerate() {
            let most = if mode == "reflect" { (size - 1).min(2) } else { 2 };
            pads[axis + 2] = self.random.number_below(most + 1);
            pads[axis + rank + 4] = self.random.number_below(most + 1);
        }
        let mut channels = x.channels;
        if mode == "constant" && self.once_in(3) {
            (pads[1], pads[rank + 3]) = (self.random.number_below(3), self.random.number_below(6));
            channels += pads[1] + pads[rank + 3];
        }
        let size = x.size.iter().enumerate();
        let size: Vec<usize> =
            size.map(|(axis, size)| size + pads[axis + 2] + pads[axis + rank + 4]).collect();
        let spaced = if size == x.size {
            x.spaced
        } else {
            self.space(&x, &format!("{mode} {}", list(&pads)))
        };
        let pads = self.integers(&pads);
        let node = match mode {
            "constant" => {
                let fill = self.floats(&[], &[0.25]);
                format!("Pad ({}, {pads}, {fill})", x.name)
            }
            _ => format!("Pad <mode = \"{mode}\"> ({}, {pads})", x.name),
        };
        self.add(Image { name: String::new(), channels, size, spaced }, &node);
    }

    /// Adds a block as in ConvNeXt: features of pixels are normalized and multiplied.
    fn features(&mut self) {
        let x = self.pick();
        let rank = x.size.len();
        let scale = self.constant(&[x.channels], 1);
        let w = self.constant(&[x.channels, 12], x.channels);
        let last: Vec<usize> = [0].into_iter().chain(2..rank + 2).chain([1]).collect();
        let first: Vec<usize> = [0, rank + 1].into_iter().chain(1..rank + 1).collect();
        let a = self.node(&format!("Transpose <perm = [{}]> ({})", list(&last), x.name));
        let epsilon = if self.family.is_open { "<epsilon = 0.1>" } else { "" };
        let b = self.node(&format!("LayerNormalization {epsilon} ({a}, {scale})"));
        let c = self.node(&format!("MatMul ({b}, {w})"));
        let node = format!("Transpose <perm = [{}]> ({c})", list(&first));
        self.add_alike(Image { channels: 12, ..x }, &node);
    }

    /// Converts blocks of pixels to channels, or the inverse.
    fn blocks(&mut self) {
        let x = self.pick();
        if x.size.len() != 2 {
            return;
        }
        let even = x.size.iter().all(|size| size.is_multiple_of(2));
        let (op, channels, size) = match x.channels.is_multiple_of(4) {
            true => ("DepthToSpace", x.channels / 4, x.size.iter().map(|size| size * 2).collect()),
            false if even => {
                ("SpaceToDepth", x.channels * 4, x.size.iter().map(|size| size / 2).collect())
            }
            false => return,
        };
        let mode = match op {
            "DepthToSpace" => self.one_of(&["", ", mode = \"CRD\""]),
            _ => "",
        };
        let node = format!("{op} <blocksize = 2{mode}> ({})", x.name);
        let spaced = self.space(&x, op);
        self.add(Image { name: String::new(), channels, size, spaced }, &node);
    }

    /// Adds a convolution of lines as planes of one row, or of planes with one more axis.
    fn through_planes(&mut self) {
        let x = self.pick();
        if x.size.len() == 3 {
            return;
        }
        let channels = self.one_of(self.family.outputs);
        let mut kernel = vec![3; x.size.len() + 1];
        kernel[0] = 1;
        let mut pads = vec![1; 2 * kernel.len()];
        (pads[0], pads[kernel.len()]) = (0, 0);
        let dims: Vec<usize> = [channels, x.channels].into_iter().chain(kernel).collect();
        let weights = self.weights(&dims, channels, x.channels * 3);
        let axis = self.integers(&[2]);
        let a = self.node(&format!("Unsqueeze ({}, {axis})", x.name));
        let b = self.node(&format!("Conv <pads = [{}]> ({a}, {weights})", list(&pads)));
        let c = self.node(&format!("Relu ({b})"));
        self.add_alike(Image { channels, ..x }, &format!("Squeeze ({c}, {axis})"));
    }

    /// Adds moves of elements, or an identity.
    fn move_elements(&mut self) {
        let x = self.pick();
        let name = &x.name;
        match self.random.number_below(6) {
            0 => {
                let count = 1 + self.random.number_below(x.channels + 3);
                let channels: Vec<usize> =
                    (0..count).map(|_| self.random.number_below(x.channels)).collect();
                let chosen = self.integers(&channels);
                let node = format!("Gather <axis = 1> ({name}, {chosen})");
                self.add_alike(Image { channels: count, ..x }, &node);
            }
            1 => {
                let pixel = self.node(&format!("GlobalAveragePool ({name})"));
                let shape = self.node(&format!("Shape ({name})"));
                self.add_alike(x, &format!("Expand ({pixel}, {shape})"));
            }
            2 => {
                let mut repeats = vec![1; x.size.len() + 2];
                repeats[2] = 2;
                let mut size = x.size.clone();
                size[0] *= 2;
                let (repeats, spaced) = (self.integers(&repeats), self.space(&x, "twice"));
                let node = format!("Tile ({name}, {repeats})");
                self.add(Image { size, spaced, ..x }, &node);
            }
            3 => {
                let node = format!("{} ({name})", self.one_of(&["Identity", "Dropout"]));
                self.add_alike(x, &node);
            }
            4 => {
                let double = self.node(&format!("Cast <to = 11> ({name})"));
                let double = self.node(&format!("Sigmoid ({double})"));
                self.add_alike(x, &format!("Cast <to = 1> ({double})"));
            }
            _ => {
                let axis = 1 + self.random.number_below(x.size.len() + 1);
                let axis = self.integers(&[axis]);
                let bounded = self.node(&format!("Softmax <axis = 1> ({name})"));
                self.add_alike(x, &format!("CumSum ({bounded}, {axis})"));
            }
        }
    }

    /// Adds coordinate attention: means along one axis become a gate.
    fn gate_by_axis(&mut self) {
        let x = self.pick();
        let axis = self.random.number_below(x.size.len()) + 2;
        let axis = self.integers(&[axis]);
        let means = self.node(&format!("ReduceMean ({}, {axis})", x.name));
        let dims: Vec<usize> =
            [x.channels, x.channels].into_iter().chain(vec![1; x.size.len()]).collect();
        let weights = self.weights(&dims, x.channels, x.channels);
        let gate = self.node(&format!("Conv ({means}, {weights})"));
        let gate = self.node(&format!("Sigmoid ({gate})"));
        let node = format!("Mul ({}, {gate})", x.name);
        self.add_alike(x, &node);
    }

    /// Adds attention of pixels as tokens.
    fn tokens(&mut self) {
        let x = self.pick();
        let (name, channels) = (&x.name, x.channels);
        let w = self.constant(&[channels, channels], channels);
        let apart = self.integers(&[0, channels as i64, -1]);
        let shape = self.node(&format!("Shape ({name})"));
        let a = self.node(&format!("Reshape ({name}, {apart})"));
        let b = self.node(&format!("Transpose <perm = [0, 2, 1]> ({a})"));
        let c = self.node(&format!("MatMul ({b}, {w})"));
        let d = self.node(&format!("Softmax <axis = -1> ({c})"));
        let e = self.node(&format!("Transpose <perm = [0, 2, 1]> ({d})"));
        self.add_alike(x, &format!("Reshape <allowzero = 1> ({e}, {shape})"));
    }

    /// Adds a convolution whose taps are shifted by the result of another one.
    fn deform(&mut self) {
        let x = self.pick();
        if x.size.len() != 2 {
            return;
        }
        let window = self.window(&x, &[1, 3], |k, _| k / 2);
        if window.attributes.contains("SAME") {
            return;
        }
        let taps: usize = window.kernel.iter().product();
        let channels = self.one_of(self.family.outputs);
        let dims = |channels: usize| -> Vec<usize> {
            [channels, x.channels].into_iter().chain(window.kernel.clone()).collect()
        };
        let by = self.constant(&dims(2 * taps), 4 * x.channels * taps);
        let w = self.constant(&dims(channels), x.channels * taps);
        let offsets = self.node(&format!("Conv <{}> ({}, {by})", window.attributes, x.name));
        let node = format!("DeformConv <{}> ({}, {w}, {offsets})", window.attributes, x.name);
        self.add_window(&x, channels, window, &node);
    }

    /// Adds a block as in YOLO: half of the channels pass through residual steps, and all are
    /// joined.
    fn split_and_add(&mut self) {
        let x = self.pick();
        let rank = x.size.len();
        let half = if self.family.is_open {
            self.one_of(&[1, 3, 4, 8, 12])
        } else {
            self.one_of(&[4, 8, 20])
        };
        let kernel = |k: usize| vec![k; rank].into_iter();
        let dims: Vec<usize> = [2 * half, x.channels].into_iter().chain(kernel(1)).collect();
        let w = self.constant(&dims, x.channels);
        let both = self.node(&format!("Conv ({}, {w})", x.name));
        let (a, mut last) = (self.name(), self.name());
        let _ = writeln!(self.body, "{a}, {last} = Split <axis = 1, num_outputs = 2> ({both})");
        let mut joined = vec![a, last.clone()];
        for _ in 0..1 + self.random.number_below(3) {
            let dims: Vec<usize> = [half, half].into_iter().chain(kernel(3)).collect();
            let w = self.constant(&dims, half * 3usize.pow(rank as u32));
            let pads = list(&vec![1; 2 * rank]);
            let conv = self.node(&format!("Conv <pads = [{pads}]> ({last}, {w})"));
            let function = self.node(&format!("HardSwish ({conv})"));
            last = match self.random.number_below(3) {
                0 => function,
                _ => self.node(&format!("Add ({last}, {function})")),
            };
            joined.push(last.clone());
        }
        let mut channels = half * joined.len();
        let first = &self.images[0];
        if first.spaced == x.spaced && self.random.number_below(3) == 0 {
            joined.push(first.name.clone());
            channels += first.channels;
        }
        let node = format!("Concat <axis = 1> ({})", joined.join(", "));
        self.add_alike(Image { channels, ..x }, &node);
    }

    /// Writes a random block of the family.
    fn write_any(&mut self) {
        match self.random.number_below(if self.family.is_open { 36 } else { 17 }) {
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
            16 => self.features(),
            17 | 18 => self.conv(),
            19 => self.conv_transpose(),
            20 | 21 => self.function(),
            22 => self.pair(),
            23 | 24 => self.mask(),
            25 => self.slice(),
            26 => self.pad(),
            27 => self.blocks(),
            28 => self.through_planes(),
            29 | 30 => self.move_elements(),
            31 => self.gate_by_axis(),
            32 => self.tokens(),
            33 => self.deform(),
            34 => self.conv(),
            _ => self.reduce(),
        }
    }

    /// Completes the graph. Its outputs are the last image, all elements of one in rows, and its
    /// means; a network of symbolic sizes has scores of three classes as well.
    fn finish(mut self) -> Network {
        for _ in 0..4 + self.random.number_below(10) {
            self.write_any();
        }
        self.conv();
        let [x, y, z] = [self.pick(), self.pick(), self.pick()];
        let first = &self.images[0];
        let (mut sizes, mut dims) = (Vec::new(), Vec::new());
        for (axis, size) in first.size.iter().enumerate() {
            dims.push(if self.family.is_open { format!("s{axis}") } else { size.to_string() });
            if self.family.is_open {
                sizes.push((format!("s{axis}"), *size));
            }
        }
        let dims = dims.join(", ");
        let mask = if self.reads_mask { format!(", float[n, 1, {dims}] m") } else { String::new() };
        let axes: Vec<usize> = (2..first.size.len() + 2).collect();
        let (channels, is_open) = (first.channels, self.family.is_open);
        let scores = if is_open {
            let w = self.constant(&[y.channels, 3], y.channels);
            let pixel = self.node(&format!("GlobalAveragePool ({})", y.name));
            let features = self.node(&format!("Flatten ({pixel})"));
            format!("{features}, {w}")
        } else {
            String::new()
        };
        let mut wanted = vec![x.name.as_str(), y.name.as_str(), z.name.as_str()];
        wanted.extend(scores.split(", "));
        let body = keep_needed(&self.body, &wanted);
        let scores = if is_open { format!("d = Gemm ({scores})\n") } else { String::new() };
        let outputs = if is_open { "a, b, c, d" } else { "a, b, c" };
        let graph = format!(
            "g (float[n, {channels}, {dims}] x{mask}) => ({outputs}) <int64[{}] axes = {{{}}}> {{\n{}\
             a = Identity ({})\nb = Flatten ({})\nc = ReduceMean <keepdims = 0> ({}, axes)\n{scores}}}",
            axes.len(),
            list(&axes),
            body,
            x.name,
            y.name,
            z.name
        );
        Network { graph, sizes }
    }
}
