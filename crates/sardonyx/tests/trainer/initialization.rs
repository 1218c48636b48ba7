//! Tests of the initialization of the state and of random numbers.

use sardonyx::{RunOptions, Tensor, Trainer};

use super::{RANDOM, bits, model, output, trainer, value_of, x};

/// Checks that initialization assigns its outputs, and resets a variable that no initialization
/// binding names to its stored value. After training and initialization, the state equals that of a
/// new trainer (TRAIN-02+-, TRAIN-21+).
#[test]
fn initialization_brings_the_untrained_state_back() {
    let text = "
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] last = {7, 8}> {
            y = Mul (x, w)
        }
        @<training_info: [{
            initialization: init () => (float[2] w0) {
                w0 = Constant <value_floats: floats = [5.0, 6.0]> ()
            },
            algorithm: step () => (float[2] w1) { w1 = Neg (w) },
            initialization_binding: [\"w\": \"w0\"],
            update_binding: [\"w\": \"w1\", \"last\": \"y\"]
        }]>";
    let mut fresh = trainer(text);
    fresh.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!(value_of(&fresh, "w"), [5.0, 6.0]);
    assert_eq!(value_of(&fresh, "last"), [7.0, 8.0]);

    let mut trained = trainer(text);
    for _ in 0..3 {
        trained.step(0, x(&[3.0, 4.0]), &RunOptions::default()).expect("a step");
    }
    assert_eq!(value_of(&trained, "last"), [3.0, 8.0]);
    assert_ne!(bits(&trained), bits(&fresh));
    trained.initialize(&RunOptions::default()).expect("an initialization");
    assert_eq!(bits(&trained), bits(&fresh));
}

/// Checks that of two entries that initialize one variable, the second wins and does not see the
/// first (TRAIN-01+, TRAIN-12+). Updating one variable from two entries works, with a warning
/// (TRAIN-08-).
#[test]
fn entries_initialize_in_the_order_of_the_list() {
    let entry = |name: &str, value: f32| {
        format!(
            "{{
                initialization: {name} () => (float {name}0) {{
                    {name}0 = Constant <value_float: float = {value:?}> ()
                }},
                algorithm: {name}_step () => (float {name}1) {{ {name}1 = Neg (w) }},
                initialization_binding: [\"w\": \"{name}0\"],
                update_binding: [\"w\": \"{name}1\"]
            }}"
        )
    };
    let text = |first: &str, second: &str| {
        format!(
            "g (float x) => (float y) <float w = {{1}}> {{ y = Mul (x, w) }}
             @<training_info: [{first}, {second}]>"
        )
    };
    let (a, b) = (entry("a", 3.0), entry("b", 4.0));
    for (text, expected) in [(text(&a, &b), 4.0), (text(&b, &a), 3.0)] {
        let mut trainer = trainer(&text);
        assert_eq!(trainer.entries(), 2);
        trainer.initialize(&RunOptions::default()).expect("an initialization");
        assert_eq!(value_of(&trainer, "w"), [expected]);
        let [warning] = trainer.warnings() else { panic!("{:?}", trainer.warnings()) };
        assert!(warning.contains("'w' is also assigned by another training entry"), "{warning}");
        trainer.step(1, [("x", Tensor::scalar(1f32))], &RunOptions::default()).expect("a step");
        assert_eq!(value_of(&trainer, "w"), [-expected]);
    }
}

/// Checks that initialization may draw random numbers (TRAIN-18+), and that the generator is part
/// of the state: initialization resets it, inference does not advance it (TRAIN-21+, TRAIN-24-).
#[test]
fn a_seed_decides_all_random_numbers() {
    let model = model(RANDOM);
    let seeded = |seed| Trainer::builder(&model).seed(seed).build().expect("a trainer");
    let four = || x(&[1.0, 1.0, 1.0, 1.0]);
    let history = |trainer: &mut Trainer| {
        trainer.initialize(&RunOptions::default()).expect("an initialization");
        let mut states = vec![value_of(trainer, "w")];
        for _ in 0..2 {
            trainer.step(0, four(), &RunOptions::default()).expect("a step");
            states.push(value_of(trainer, "w"));
            let one = trainer.infer(four(), &RunOptions::default()).expect("a run");
            assert_eq!(one, trainer.infer(four(), &RunOptions::default()).expect("a run"));
            states.push(output(&one, "noise"));
        }
        states
    };
    let mut trainer = seeded(7);
    let first = history(&mut trainer);
    assert_eq!(history(&mut trainer), first);
    assert_eq!(history(&mut seeded(7)), first);
    assert_ne!(history(&mut seeded(8)), first);
    assert_ne!(first[2], first[4], "inference draws other numbers after a step");
    let added = |index: usize, before: usize| -> Vec<f32> {
        first[index].iter().zip(&first[before]).map(|(after, before)| after - before).collect()
    };
    assert_ne!(added(1, 0), added(3, 1), "the second step draws other numbers");
    let system = Trainer::new(&model).expect("a trainer");
    assert_ne!(system.seed(), Trainer::new(&model).expect("a trainer").seed());
}
