//! The trait `Run`: runs a model in one session or on several devices by one interface.

use std::borrow::Cow;

use sardonyx_runtime::{Port, RunOptions};
use sardonyx_tensor::{TensorView, TensorViewMut, Value};
use smallvec::SmallVec;

#[cfg(feature = "device")]
use crate::devices::DeviceSession;
use crate::error::Error;
use crate::outputs::Outputs;
use crate::session::Session;

mod sealed {
    /// Supertrait that other crates cannot implement, so that [`Run`](super::Run) can get more
    /// methods.
    pub trait Sealed {}

    impl Sealed for super::Session {}
    #[cfg(feature = "device")]
    impl Sealed for super::DeviceSession {}
    impl Sealed for super::Runner {}
}

/// A model that is ready to run: a [`Session`], a `DeviceSession`, or a [`Runner`] of either.
///
/// The sessions have inherent methods with the names of this trait's methods; the trait is for
/// generic code. It is sealed.
///
/// ```
/// use sardonyx::run::{Run, Runner};
/// use sardonyx::{Error, Model, RunOptions, Session, Tensor};
///
/// fn first_output(model: &impl Run, x: Tensor) -> Result<Tensor, Error> {
///     let outputs = model.run([("x", x)], &RunOptions::default())?;
///     outputs.tensor(model.outputs()[0].name()).cloned()
/// }
///
/// let model = Model::from_text(
///     "<ir_version: 11, opset_import: [\"\": 21]>
///      g (float[2] x) => (float[2] y) { a = Abs (x)  y = Neg (a) }",
/// )?;
/// let x = Tensor::from_slice([2], &[3.0f32, -4.0])?;
/// let session = Session::new(&model)?;
/// // With the feature `device`, a `DeviceSession` becomes a `Runner` too.
/// let runner = Runner::from(session.clone());
/// assert_eq!(first_output(&session, x.clone())?, first_output(&runner, x)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Run: sealed::Sealed + Send + Sync + 'static {
    /// Returns the names and types of the inputs of a run, in the model's order.
    fn inputs(&self) -> &[Port];

    /// Returns the type of the input called `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if no input has this name.
    fn input(&self, name: &str) -> Result<&Port, Error>;

    /// Returns the names and types of the outputs of a run, in the model's order.
    fn outputs(&self) -> &[Port];

    /// Returns the number of threads of a run in this process.
    fn threads(&self) -> usize;

    /// Returns the instruction set that kernels use; see [`Session::instruction_set`].
    fn instruction_set(&self) -> String;

    /// Runs the model on inputs, given by name in any order, and returns its outputs.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`], and of a run on devices.
    fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>;

    /// Runs the model on borrowed inputs and writes the named outputs into memory of the caller;
    /// other outputs are dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run_into`], and of a run on devices.
    fn run_into(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error>;
}

/// A session on one device or, with the feature `device`, on several devices, for code that decides
/// at run time.
#[derive(Debug)]
pub enum Runner {
    /// One session runs the whole model.
    Session(Session),
    /// Several devices run parts of the model.
    #[cfg(feature = "device")]
    Devices(Box<DeviceSession>),
}

impl From<Session> for Runner {
    fn from(session: Session) -> Runner {
        Runner::Session(session)
    }
}

#[cfg(feature = "device")]
impl From<DeviceSession> for Runner {
    fn from(session: DeviceSession) -> Runner {
        Runner::Devices(Box::new(session))
    }
}

/// Names and values of the inputs of a run.
pub(crate) type NamedValues<'p> = SmallVec<[(Cow<'p, str>, Value); 4]>;

/// Collects names and values of the inputs of a run. Borrows the names of `ports`, and copies only
/// names that no port has.
pub(crate) fn collect_inputs<'p, N: AsRef<str>, V: Into<Value>>(
    inputs: impl IntoIterator<Item = (N, V)>,
    ports: impl Iterator<Item = &'p Port> + Clone,
) -> NamedValues<'p> {
    let inputs = inputs.into_iter().map(|(name, value)| {
        let name = name.as_ref();
        let name = match ports.clone().find(|port| port.name() == name) {
            Some(port) => Cow::Borrowed(port.name()),
            None => Cow::Owned(name.to_string()),
        };
        (name, value.into())
    });
    inputs.collect()
}

/// Implements [`Run`] by the inherent methods of a type.
macro_rules! run_by_own_methods {
    ($session:ty) => {
        impl Run for $session {
            fn inputs(&self) -> &[Port] {
                <$session>::inputs(self)
            }

            fn input(&self, name: &str) -> Result<&Port, Error> {
                <$session>::input(self, name)
            }

            fn outputs(&self) -> &[Port] {
                <$session>::outputs(self)
            }

            fn threads(&self) -> usize {
                <$session>::threads(self)
            }

            fn instruction_set(&self) -> String {
                <$session>::instruction_set(self)
            }

            fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
            where
                I: IntoIterator<Item = (N, V)>,
                N: AsRef<str>,
                V: Into<Value>,
            {
                <$session>::run(self, inputs, options)
            }

            fn run_into(
                &self,
                inputs: &[(&str, TensorView<'_>)],
                outputs: &mut [(&str, TensorViewMut<'_>)],
                options: &RunOptions<'_>,
            ) -> Result<(), Error> {
                <$session>::run_into(self, inputs, outputs, options)
            }
        }
    };
}

run_by_own_methods!(Session);
#[cfg(feature = "device")]
run_by_own_methods!(DeviceSession);

impl Run for Runner {
    fn inputs(&self) -> &[Port] {
        match self {
            Runner::Session(session) => session.inputs(),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.inputs(),
        }
    }

    fn input(&self, name: &str) -> Result<&Port, Error> {
        match self {
            Runner::Session(session) => session.input(name),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.input(name),
        }
    }

    fn outputs(&self) -> &[Port] {
        match self {
            Runner::Session(session) => session.outputs(),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.outputs(),
        }
    }

    fn threads(&self) -> usize {
        match self {
            Runner::Session(session) => session.threads(),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.threads(),
        }
    }

    fn instruction_set(&self) -> String {
        match self {
            Runner::Session(session) => session.instruction_set(),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.instruction_set(),
        }
    }

    fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        match self {
            Runner::Session(session) => session.run(inputs, options),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.run(inputs, options),
        }
    }

    fn run_into(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        match self {
            Runner::Session(session) => session.run_into(inputs, outputs, options),
            #[cfg(feature = "device")]
            Runner::Devices(session) => session.run_into(inputs, outputs, options),
        }
    }
}
