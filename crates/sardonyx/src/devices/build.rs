//! Builder of sessions on several devices.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use super::DeviceSession;
use super::crew::{Crew, connect};
use super::options::{DeviceOptions, Results};
use super::plans::ShardSource;
use super::state::ResidentVariables;
use super::team::{self, Team};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::model::Model;
use crate::session::{Choices, SessionBuilder};

impl SessionBuilder<'_> {
    /// Builds a session that runs the model on the devices of a configuration, each device in a
    /// thread of its own. Without [`SessionBuilder::threads`], the devices of this process divide
    /// the processors evenly. With [`DeviceOptions::transport`], blocks until all workers have
    /// connected, and compares their models and options.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a configuration that the model does not have or that cannot be
    /// chosen; [`ErrorKind::Worker`] if workers differ in model, options or version, or one is
    /// missing; the errors of [`SessionBuilder::build`].
    pub fn devices(self, options: DeviceOptions) -> Result<DeviceSession, Error> {
        catch_panic(|| self.make_on_devices(options))
    }

    /// Builds the session of [`SessionBuilder::devices`], which catches panics.
    fn make_on_devices(self, options: DeviceOptions) -> Result<DeviceSession, Error> {
        let mut choices = self.choices().clone();
        if choices.rank.take().is_some() {
            let message = "a session on devices takes its transport from the options of the devices, not from those of the session";
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let model = choices.take_functions(self.model())?;
        let (configuration, devices) = model.devices_of(options.configuration.as_deref())?;
        // All devices use one seed, so that replicated random operators give equal values.
        let seed = choices.seed();
        let team = options.transport.clone().map(Team::new);
        choices.options.seed = Some(match &team {
            Some(team) => {
                let mut setup = team::describe_setup(&model, &configuration, devices, &choices)?;
                match options.results {
                    Results::First => {}
                    Results::All => setup.push_str("results to all workers\n"),
                    Results::Split => setup.push_str("results stay on the devices\n"),
                }
                team.agree(&setup, seed)?
            }
            None => seed,
        });
        let links = connect(devices, &options);
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        choices.options.threads.get_or_insert((processors / links.len().max(1)).max(1));
        let crew = Crew::start(links, options, team, devices);
        DeviceSession::new(model, choices, crew, ResidentVariables::default())
    }
}

impl DeviceSession {
    /// Makes a session of a model that already contains all functions called by its nodes.
    pub(super) fn new(
        model: Model,
        mut choices: Choices,
        crew: Crew,
        stays: ResidentVariables,
    ) -> Result<DeviceSession, Error> {
        // Every run reads names, and a run with new sizes reads constants: own both in memory.
        let model = model.with_own_structure()?;
        let look = choices.to_builder(&model).inspect_only().build()?;
        // Models of devices have numbers in place of these symbols.
        let sizes = std::mem::take(&mut choices.options.dims);
        choices.options.has_sizes_of_runs = true;
        let source = ShardSource::new(&model, &choices.options.operators.registry(), sizes)?;
        let (plans, copied) = (Mutex::default(), Mutex::default());
        Ok(DeviceSession { model, source, choices, look, crew, stays, plans, copied })
    }
}
