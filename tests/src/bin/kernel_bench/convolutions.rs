//! Convolutions and pooling of the shapes of real networks, one image at a time.

use super::{Bench, Group, Work, copies_of, numbers};
use sardonyx_kernels::conv::{ConvEpilogue, ConvParams, Order, Ordered, OrderedMut, PackedConv};
use sardonyx_kernels::gemm::Activation;
use sardonyx_kernels::pixels::pitch_of;
use sardonyx_kernels::pooling::Window;
use sardonyx_kernels::reduce::Reduce;
use sardonyx_kernels::{Loops, MaxPoolLoops};

/// A convolution of square images.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) channels: usize,
    pub(super) out_channels: usize,
    pub(super) size: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) depthwise: bool,
    /// Number of occurrences in the network.
    pub(super) count: usize,
}

/// Input channels, output channels, size, kernel, stride, count.
const RESNET50: &[(usize, usize, usize, usize, usize, usize)] = &[
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 1, 1, 1),
    (64, 64, 56, 3, 1, 3),
    (64, 256, 56, 1, 1, 4),
    (256, 64, 56, 1, 1, 2),
    (256, 128, 56, 1, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (128, 512, 28, 1, 1, 4),
    (256, 512, 56, 1, 2, 1),
    (512, 128, 28, 1, 1, 3),
    (128, 128, 28, 3, 1, 3),
    (512, 256, 28, 1, 1, 1),
    (256, 256, 28, 3, 2, 1),
    (256, 1024, 14, 1, 1, 6),
    (512, 1024, 28, 1, 2, 1),
    (1024, 256, 14, 1, 1, 5),
    (256, 256, 14, 3, 1, 5),
    (1024, 512, 14, 1, 1, 1),
    (512, 512, 14, 3, 2, 1),
    (512, 2048, 7, 1, 1, 3),
    (1024, 2048, 14, 1, 2, 1),
    (2048, 512, 7, 1, 1, 2),
    (512, 512, 7, 3, 1, 2),
];

/// Depthwise convolutions of MobileNet and ConvNeXt: channels, size, kernel, stride.
const DEPTHWISE: &[(usize, usize, usize, usize)] = &[
    (16, 112, 3, 1),
    (64, 112, 3, 2),
    (72, 56, 3, 1),
    (72, 56, 5, 2),
    (120, 28, 5, 1),
    (200, 14, 3, 1),
    (672, 14, 5, 1),
    (960, 7, 5, 1),
    (96, 56, 7, 1),
    (384, 14, 7, 1),
];

pub(super) fn run(bench: &Bench) {
    let mut group = Group::new(bench, "convolutions, resnet50");
    let shapes = RESNET50.iter().map(|&(channels, out_channels, size, kernel, stride, count)| {
        Shape { channels, out_channels, size, kernel, stride, depthwise: false, count }
    });
    for shape in shapes.clone() {
        time_alone(&mut group, shape);
    }
    time_together(&mut group, shapes.collect());
    drop(group);

    let mut group = Group::new(bench, "convolutions, depthwise");
    for &(channels, size, kernel, stride) in DEPTHWISE {
        time_alone(
            &mut group,
            Shape {
                channels,
                out_channels: channels,
                size,
                kernel,
                stride,
                depthwise: true,
                count: 1,
            },
        );
    }
    drop(group);

    let mut group = Group::new(bench, "pooling");
    max_pool(&mut group, 64, 112, 3, 2);
    max_pool(&mut group, 256, 20, 5, 1);
    global_mean(&mut group, 2048, 49);
    global_mean(&mut group, 72, 784);
}

impl Shape {
    /// Makes a convolution with stride 1 and as many output channels as input channels.
    pub(super) fn with_equal_channels(channels: usize, size: usize, kernel: usize) -> Shape {
        let (out_channels, stride) = (channels, 1);
        Shape { channels, out_channels, size, kernel, stride, depthwise: false, count: 1 }
    }

    pub(super) fn name(&self) -> String {
        let Shape { channels, out_channels, size, kernel, stride, .. } = self;
        format!("{channels} to {out_channels} at {size}, {kernel}x{kernel}/{stride}")
    }

    fn params(&self) -> ConvParams {
        let pad = self.kernel / 2;
        ConvParams {
            strides: [self.stride; 2][..].into(),
            pads_begin: [pad; 2][..].into(),
            pads_end: [pad; 2][..].into(),
            groups: if self.depthwise { self.channels } else { 1 },
            ..ConvParams::new(self.channels, self.out_channels, &[self.kernel; 2])
        }
    }

    /// Returns the number of elements of the output.
    fn outputs(&self) -> usize {
        let dims = self.params().output_dims(&[self.size; 2]);
        self.out_channels * dims.expect("the shapes fit").iter().product::<usize>()
    }

    fn inputs(&self) -> usize {
        self.channels * self.size * self.size
    }

    pub(super) fn weights(&self) -> usize {
        let inputs = if self.depthwise { 1 } else { self.channels };
        self.out_channels * inputs * self.kernel * self.kernel
    }

    pub(super) fn work(&self) -> Work {
        let products = self.outputs() * (self.weights() / self.out_channels);
        let elements = self.inputs() + self.outputs() + self.weights();
        Work {
            flops: 2.0 * products as f64,
            bytes: (elements * size_of::<f32>()) as f64,
            // Images come from the layer before.
            from_memory: false,
        }
    }
}

/// A convolution with its data.
pub(super) struct Layer {
    shape: Shape,
    /// With weights of their own.
    convs: Vec<PackedConv>,
    input: Vec<f32>,
    output: Vec<f32>,
    bias: Vec<f32>,
}

impl Layer {
    pub(super) fn new(bench: &Bench, shape: Shape, copies: usize) -> Layer {
        let weights = numbers(shape.weights());
        let conv =
            |_| PackedConv::new(bench.isa, shape.params(), &weights).expect("the shapes fit");
        Layer {
            shape,
            convs: (0..copies).map(conv).collect(),
            input: numbers(shape.inputs() / shape.channels * pitch_of(shape.channels)),
            output: vec![0.0; shape.outputs() / shape.out_channels * pitch_of(shape.out_channels)],
            bias: numbers(shape.out_channels),
        }
    }

    pub(super) fn run(&mut self, bench: &Bench, turn: usize) {
        let epilogue = ConvEpilogue {
            bias: Some(&self.bias),
            activation: Activation::Relu,
            ..ConvEpilogue::default()
        };
        let conv = &self.convs[turn % self.convs.len()];
        let size = [self.shape.size; 2];
        // Networks begin with images of few channels in rows; all else has channels last.
        let order = |channels| Order::ChannelsLast { pitch: pitch_of(channels) };
        let from = if self.shape.channels < 8 { Order::Rows } else { order(self.shape.channels) };
        let len = match from {
            Order::Rows => self.shape.inputs(),
            Order::ChannelsLast { .. } => self.input.len(),
        };
        let input = Ordered { data: &self.input[..len], order: from };
        let output = OrderedMut { data: &mut self.output, order: order(self.shape.out_channels) };
        conv.run(&bench.pool, 1, &size, input, output, &epilogue).expect("the shapes fit");
    }
}

/// Measures one convolution.
fn time_alone(group: &mut Group<'_>, shape: Shape) {
    let (bench, name) = (group.bench, shape.name());
    if group.wants(&name) {
        let copies = copies_of(shape.weights() * size_of::<f32>());
        let mut layer = Layer::new(bench, shape, copies);
        group.time_layer(&name, shape.work(), copies, |copy| {
            layer.run(bench, copy);
            Ok(())
        });
    }
}

/// Measures all convolutions of a network, one after the other.
fn time_together(group: &mut Group<'_>, shapes: Vec<Shape>) {
    let (bench, name) = (group.bench, "one pass over all");
    if !group.wants(name) {
        return;
    }
    let mut work = Work::default();
    for shape in &shapes {
        let of_one = shape.work();
        work.flops += of_one.flops * shape.count as f64;
        work.bytes += of_one.bytes * shape.count as f64;
    }
    let mut layers: Vec<Layer> =
        shapes.into_iter().map(|shape| Layer::new(bench, shape, shape.count)).collect();
    group.time(name, work, |_| {
        for layer in &mut layers {
            for turn in 0..layer.shape.count {
                layer.run(bench, turn);
            }
        }
        Ok(())
    });
}

fn max_pool(group: &mut Group<'_>, planes: usize, size: usize, kernel: usize, stride: usize) {
    let name = format!("maximum, {planes} at {size}, {kernel}x{kernel}/{stride}");
    if !group.wants(&name) {
        return;
    }
    let bench = group.bench;
    let pad = kernel / 2;
    let out = (size + 2 * pad - kernel) / stride + 1;
    let window = Window {
        input: &[size; 2],
        output: &[out; 2],
        kernel: &[kernel; 2],
        strides: &[stride; 2],
        dilations: &[1; 2],
        pads_begin: &[pad; 2],
        pads_end: &[pad; 2],
    };
    let x = numbers(planes * size * size);
    let mut y = vec![0.0; planes * out * out];
    let work = in_caches(x.len() + y.len());
    group.time(&name, work, |_| f32::max_pool(&bench.exec(), planes, &window, &x, &mut y));
}

fn global_mean(group: &mut Group<'_>, planes: usize, len: usize) {
    let name = format!("mean of {planes} planes of {len}");
    if !group.wants(&name) {
        return;
    }
    let bench = group.bench;
    let x = numbers(planes * len);
    let mut y = vec![0.0; planes];
    let dims = [planes, len];
    group.time(&name, in_caches(x.len() + y.len()), |_| {
        let axes = [false, true];
        f32::reduce(&bench.exec(), Reduce::Mean, &dims, &axes, &x, &mut y)
    });
}

fn in_caches(elements: usize) -> Work {
    Work { bytes: (elements * size_of::<f32>()) as f64, ..Work::default() }
}
