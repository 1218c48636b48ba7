//! Options of sessions and runs: names, types, defaults, and their effects in Sardonyx.
//!
//! All options of onnxruntime exist and keep their values, so that a program can read them back.
//! The documentation of an option states whether its value is used.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use sardonyx::value::Buffer;
use sardonyx::{ErrorKind, StopFlag};

use crate::config;
use crate::error::Error;
use crate::status::Status;

/// Key of the entry with the directory of the data files of a model that is opened from bytes.
pub const DATA_DIRECTORY_KEY: &str = "session.model_external_initializers_file_folder_path";

/// Named numbers of an enumeration of onnxruntime.
#[derive(Debug, PartialEq, Eq)]
pub struct Levels {
    /// Name of the type.
    pub name: &'static str,
    /// Names and numbers.
    pub members: &'static [(&'static str, i64)],
}

/// Levels of graph optimization.
pub const GRAPH_OPTIMIZATION_LEVEL: Levels = Levels {
    name: "GraphOptimizationLevel",
    members: &[
        ("ORT_DISABLE_ALL", 0),
        ("ORT_ENABLE_BASIC", 1),
        ("ORT_ENABLE_EXTENDED", 2),
        ("ORT_ENABLE_LAYOUT", 3),
        ("ORT_ENABLE_ALL", 99),
    ],
};

/// Modes of execution: one node after the other, or several at the same time.
pub const EXECUTION_MODE: Levels =
    Levels { name: "ExecutionMode", members: &[("ORT_SEQUENTIAL", 0), ("ORT_PARALLEL", 1)] };

/// Order in which nodes run.
pub const EXECUTION_ORDER: Levels = Levels {
    name: "ExecutionOrder",
    members: &[("DEFAULT", 0), ("PRIORITY_BASED", 1), ("MEMORY_EFFICIENT", 2)],
};

/// Severity of messages of the log.
pub const LOGGING_LEVEL: Levels = Levels {
    name: "LoggingLevel",
    members: &[("VERBOSE", 0), ("INFO", 1), ("WARNING", 2), ("ERROR", 3), ("FATAL", 4)],
};

/// All enumerations.
pub const LEVELS: [&Levels; 4] =
    [&GRAPH_OPTIMIZATION_LEVEL, &EXECUTION_MODE, &EXECUTION_ORDER, &LOGGING_LEVEL];

impl Levels {
    /// Whether `number` has a name.
    pub fn contains(&self, number: i64) -> bool {
        self.members.iter().any(|(_, known)| *known == number)
    }
}

/// Default of an option, which determines its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionDefault {
    /// Number.
    Int(i64),
    /// Boolean.
    Bool(bool),
    /// Text.
    Text(&'static str),
    /// Named number.
    Level(&'static Levels, i64),
}

/// Value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// Number, perhaps a named one.
    Int(i64),
    /// Boolean.
    Bool(bool),
    /// Text of the system, as some options are paths.
    Text(OsString),
}

impl OptionDefault {
    /// Returns the name of the type: `int`, `bool`, `str` or that of the enumeration.
    pub fn type_name(&self) -> &'static str {
        match self {
            OptionDefault::Int(_) => "int",
            OptionDefault::Bool(_) => "bool",
            OptionDefault::Text(_) => "str",
            OptionDefault::Level(levels, _) => levels.name,
        }
    }

    /// Returns the default value.
    fn value(&self) -> OptionValue {
        match self {
            OptionDefault::Int(number) | OptionDefault::Level(_, number) => {
                OptionValue::Int(*number)
            }
            OptionDefault::Bool(choice) => OptionValue::Bool(*choice),
            OptionDefault::Text(text) => OptionValue::Text(text.into()),
        }
    }

    /// Whether `value` has the type of the option.
    fn admits(&self, value: &OptionValue) -> bool {
        match (self, value) {
            (OptionDefault::Int(_), OptionValue::Int(_))
            | (OptionDefault::Bool(_), OptionValue::Bool(_))
            | (OptionDefault::Text(_), OptionValue::Text(_)) => true,
            (OptionDefault::Level(levels, _), OptionValue::Int(number)) => levels.contains(*number),
            _ => false,
        }
    }
}

/// Option of sessions or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionInfo {
    /// Name of the option.
    pub name: &'static str,
    /// Default, which determines the type.
    pub default: OptionDefault,
    /// Documentation: the effect, or that there is none.
    pub doc: &'static str,
}

/// Creates an option.
const fn option(name: &'static str, default: OptionDefault, doc: &'static str) -> OptionInfo {
    OptionInfo { name, default, doc }
}

/// Name of the option: number of threads of a run.
pub const THREADS: &str = "intra_op_num_threads";
/// Name of the option: whether a session writes a profile.
pub const PROFILING: &str = "enable_profiling";
/// Name of the option: beginning of the name of a profile.
pub const PROFILE_PREFIX: &str = "profile_file_prefix";
/// Name of the option: path to which the simplified model is written.
pub const OPTIMIZED_MODEL: &str = "optimized_model_filepath";

const NO_LOG: &str = "Accepted and ignored: Sardonyx writes no log.";
const IGNORED: &str = "Accepted and ignored.";

/// Options of the log, which both sessions and runs have.
const LOG_OPTIONS: [OptionInfo; 3] = [
    option("log_severity_level", OptionDefault::Int(-1), NO_LOG),
    option("log_verbosity_level", OptionDefault::Int(0), NO_LOG),
    option("logid", OptionDefault::Text(""), NO_LOG),
];

/// Options of sessions.
pub const SESSION_OPTIONS: [OptionInfo; 16] = [
    LOG_OPTIONS[0],
    LOG_OPTIONS[1],
    LOG_OPTIONS[2],
    option(
        THREADS,
        OptionDefault::Int(0),
        "How many threads a run uses, the calling one included; 0 for one per processor. Sessions \
         share their threads, so there are never more than processors.",
    ),
    option(
        "inter_op_num_threads",
        OptionDefault::Int(0),
        "Accepted and ignored: nodes run one after the other.",
    ),
    option(
        "graph_optimization_level",
        OptionDefault::Level(&GRAPH_OPTIMIZATION_LEVEL, 99),
        IGNORED,
    ),
    option("execution_mode", OptionDefault::Level(&EXECUTION_MODE, 0), IGNORED),
    option("execution_order", OptionDefault::Level(&EXECUTION_ORDER, 0), IGNORED),
    option("enable_cpu_mem_arena", OptionDefault::Bool(true), IGNORED),
    option("enable_mem_pattern", OptionDefault::Bool(true), IGNORED),
    option("enable_mem_reuse", OptionDefault::Bool(true), IGNORED),
    option(
        PROFILING,
        OptionDefault::Bool(false),
        "Whether the session records its runs for end_profiling().",
    ),
    option(
        PROFILE_PREFIX,
        OptionDefault::Text("onnxruntime_profile_"),
        "How the name of a profile begins.",
    ),
    option(
        OPTIMIZED_MODEL,
        OptionDefault::Text(""),
        "Path to which the simplified model is written, at its own operator set versions. \
         Results of the model change by rounding.",
    ),
    option(
        "use_deterministic_compute",
        OptionDefault::Bool(false),
        "Accepted and ignored: computing is always deterministic.",
    ),
    option(
        "use_per_session_threads",
        OptionDefault::Bool(true),
        "Accepted and ignored: sessions share their threads.",
    ),
];

/// Options of runs.
pub const RUN_OPTIONS: [OptionInfo; 4] = [
    LOG_OPTIONS[0],
    LOG_OPTIONS[1],
    LOG_OPTIONS[2],
    option("only_execute_path_to_fetches", OptionDefault::Bool(false), IGNORED),
];

/// Values of options, and free-text entries of the configuration.
#[derive(Debug, Clone)]
pub struct Values {
    /// Known options.
    table: &'static [OptionInfo],
    /// Plural noun for messages.
    what: &'static str,
    /// Values that were set, by name.
    set: BTreeMap<&'static str, OptionValue>,
    /// Entries of the configuration, by key.
    entries: BTreeMap<String, OsString>,
}

impl Values {
    /// Creates values without any set.
    fn new(table: &'static [OptionInfo], what: &'static str) -> Values {
        Values { table, what, set: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// Returns the description of an option; `None` for an unknown name.
    pub fn info(&self, name: &str) -> Option<&'static OptionInfo> {
        self.table.iter().find(|option| option.name == name)
    }

    /// Returns the value of an option; `None` for an unknown name.
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        self.set.get(name).cloned().or_else(|| Some(self.info(name)?.default.value()))
    }

    /// Sets an option.
    ///
    /// # Errors
    ///
    /// If the name is unknown, the value has another type, or a level's number has no name.
    pub fn set(&mut self, name: &str, value: OptionValue) -> Result<(), Error> {
        let Some(info) = self.info(name) else {
            let names: Vec<&str> = self.table.iter().map(|option| option.name).collect();
            return Err(Error::argument(
                format!("the {} have no option '{name}'", self.what),
                format!("use one of {}", names.join(", ")),
            ));
        };
        if !info.default.admits(&value) {
            let kind = info.default.type_name();
            return Err(Error::argument(
                format!("the option '{name}' is {value:?}, which is not of the type {kind}"),
                format!("give a value of the type {kind}"),
            ));
        }
        self.set.insert(info.name, value);
        Ok(())
    }

    /// Returns the values that were set, by name.
    pub fn set_values(&self) -> impl Iterator<Item = (&'static str, &OptionValue)> {
        self.set.iter().map(|(name, value)| (*name, value))
    }

    /// Adds an entry of the configuration, or replaces it.
    pub fn add_entry(&mut self, key: String, value: OsString) {
        self.entries.insert(key, value);
    }

    /// Returns the value of an entry of the configuration.
    ///
    /// # Errors
    ///
    /// If no entry has this key.
    pub fn entry(&self, key: &str) -> Result<&OsStr, Error> {
        self.entries.get(key).map(OsString::as_os_str).ok_or_else(|| {
            let what = format!("the {} have no entry '{key}'", self.what);
            Error::new(Status::Fail, ErrorKind::Argument, what)
        })
    }

    /// Returns the entries of the configuration.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns the number of an option of [`OptionDefault::Int`].
    fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(OptionValue::Int(number)) => number,
            _ => 0,
        }
    }

    /// Returns the text of an option of [`OptionDefault::Text`].
    fn text(&self, name: &str) -> OsString {
        match self.get(name) {
            Some(OptionValue::Text(text)) => text,
            _ => OsString::new(),
        }
    }
}

/// Value that replaces an initializer.
#[derive(Debug, Clone)]
pub struct GivenInitializer<V> {
    /// Name of the initializer.
    pub name: String,
    /// Value, in the form of the interface. Sessions that are created later read it.
    pub value: V,
    /// Whether the model must have an initializer of that name in a data file.
    pub must_be_external: bool,
}

/// Options of a session. `V` is the form in which an interface keeps a tensor.
#[derive(Debug, Clone)]
pub struct SessionOptions<V> {
    /// Options and entries of the configuration.
    pub values: Values,
    /// Sizes that the model leaves open, by name.
    pub sizes: Vec<(String, usize)>,
    /// Sizes that the model leaves open, by the denotation of their axis.
    pub denoted: Vec<(String, usize)>,
    /// Values that replace initializers.
    pub initializers: Vec<GivenInitializer<V>>,
    /// Contents of data files, by location. If there are any, data files are not searched for.
    pub files: Vec<(String, Buffer)>,
}

impl<V> Default for SessionOptions<V> {
    fn default() -> Self {
        SessionOptions {
            values: Values::new(&SESSION_OPTIONS, "session options"),
            sizes: Vec::new(),
            denoted: Vec::new(),
            initializers: Vec::new(),
            files: Vec::new(),
        }
    }
}

impl<V> SessionOptions<V> {
    /// Fixes a size that the model leaves open, by its name. The last call for a name counts.
    pub fn fix_size(&mut self, name: String, size: usize) {
        match self.sizes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = size,
            None => self.sizes.push((name, size)),
        }
    }

    /// Adds a value that replaces an initializer. A name that the model lacks is ignored.
    ///
    /// # Errors
    ///
    /// If the name was added before.
    pub fn add_initializer(&mut self, name: String, value: V) -> Result<(), Error> {
        if self.initializers.iter().any(|known| known.name == name) {
            let what = format!("the initializer '{name}' was given before");
            return Err(Error::argument(what, "give each of them once"));
        }
        self.initializers.push(GivenInitializer { name, value, must_be_external: false });
        Ok(())
    }

    /// Adds values that replace initializers that the model has in data files, which are then not
    /// opened.
    ///
    /// # Errors
    ///
    /// If the numbers of names and values differ.
    pub fn add_external_initializers(
        &mut self,
        names: Vec<String>,
        values: Vec<V>,
    ) -> Result<(), Error> {
        demand_as_many(("names", names.len()), ("values", values.len()))?;
        let pairs = names.into_iter().zip(values);
        self.initializers.extend(pairs.map(|(name, value)| GivenInitializer {
            name,
            value,
            must_be_external: true,
        }));
        Ok(())
    }

    /// Adds the content of a data file, by location.
    pub fn add_file(&mut self, name: String, content: Buffer) {
        self.files.push((name, content));
    }

    /// Returns the number of threads; `None` for one per processor.
    pub fn threads(&self) -> Option<usize> {
        usize::try_from(self.values.int(THREADS)).ok().filter(|threads| *threads > 0)
    }

    /// Returns the beginning of the profile's name; `None` if no profile is written.
    pub fn profile_prefix(&self) -> Option<OsString> {
        let is_wanted = self.values.get(PROFILING) == Some(OptionValue::Bool(true));
        is_wanted.then(|| self.values.text(PROFILE_PREFIX))
    }

    /// Returns the directory of the data files of a model that is opened from bytes; `None` for the
    /// current directory.
    pub fn data_directory(&self) -> Option<&OsStr> {
        self.values.entry(DATA_DIRECTORY_KEY).ok()
    }

    /// Returns the path to which the simplified model is written, if any.
    pub fn optimized_model(&self) -> Option<PathBuf> {
        let path = self.values.text(OPTIMIZED_MODEL);
        (!path.is_empty()).then(|| path.into())
    }

    /// Returns warnings about entries whose effect a caller would miss.
    pub fn warnings(&self) -> Vec<String> {
        let entries = self.values.entries();
        entries.filter_map(|(key, value)| config::warn_of(key, value.to_str()?)).collect()
    }
}

/// Checks how many bytes of each buffer belong to a data file, and returns the numbers. A buffer
/// may be longer than its file.
///
/// # Errors
///
/// If the numbers of names, buffers and lengths differ, or a length exceeds its buffer.
pub fn file_lengths(
    names: &[String],
    buffer_sizes: &[usize],
    lengths: &[i64],
) -> Result<Vec<usize>, Error> {
    demand_as_many(("names", names.len()), ("buffers", buffer_sizes.len()))?;
    demand_as_many(("names", names.len()), ("lengths", lengths.len()))?;
    let files = names.iter().zip(buffer_sizes).zip(lengths);
    let checked = files.map(|((name, size), length)| {
        usize::try_from(*length).ok().filter(|length| length <= size).ok_or_else(|| {
            Error::argument(
                format!(
                    "the length of the data file '{name}' is {length}, but its buffer has {size} bytes"
                ),
                "give the number of bytes that belong to the file",
            )
        })
    });
    checked.collect()
}

/// Refuses lists of different lengths.
fn demand_as_many(
    (what, count): (&str, usize),
    (others, given): (&str, usize),
) -> Result<(), Error> {
    if count == given {
        return Ok(());
    }
    let found = format!("there are {count} {what} and {given} {others}");
    Err(Error::argument(found, format!("give as many {others} as {what}")))
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Options and entries of the configuration.
    pub values: Values,
    /// Flag that stops the runs with these options while it is raised.
    pub stop: StopFlag,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { values: Values::new(&RUN_OPTIONS, "run options"), stop: StopFlag::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_of_their_types_and_names_differ() {
        for table in [&SESSION_OPTIONS[..], &RUN_OPTIONS] {
            for (number, option) in table.iter().enumerate() {
                assert!(option.default.admits(&option.default.value()), "{option:?}");
                let same = |other: &OptionInfo| other.name == option.name;
                assert!(!table[..number].iter().any(same), "{option:?}");
            }
        }
    }

    #[test]
    fn options_take_values_of_their_type() {
        let mut values = SessionOptions::<()>::default().values;
        let rows = [
            (THREADS, OptionValue::Int(-7), true),
            (THREADS, OptionValue::Bool(true), false),
            (PROFILING, OptionValue::Bool(true), true),
            (PROFILING, OptionValue::Int(1), false),
            (PROFILE_PREFIX, OptionValue::Text("p".into()), true),
            (PROFILE_PREFIX, OptionValue::Int(1), false),
            ("graph_optimization_level", OptionValue::Int(2), true),
            ("graph_optimization_level", OptionValue::Int(98), false),
            ("foo", OptionValue::Int(1), false),
        ];
        for (name, value, is_taken) in rows {
            let before = values.get(name);
            assert_eq!(values.set(name, value.clone()).is_ok(), is_taken, "{name} {value:?}");
            assert_eq!(values.get(name), if is_taken { Some(value) } else { before }, "{name}");
        }
        let error = values.set("foo", OptionValue::Int(1)).unwrap_err();
        assert_eq!(error.message, "the session options have no option 'foo'");
        assert!(values.entry("a").is_err());
        values.add_entry("a".into(), "b".into());
        values.add_entry("a".into(), "c".into());
        assert_eq!(values.entry("a").unwrap(), "c");
    }

    #[test]
    fn the_session_reads_threads_and_profiles() {
        let mut options = SessionOptions::<()>::default();
        assert_eq!((options.threads(), options.profile_prefix()), (None, None));
        for (number, threads) in [(3, Some(3)), (0, None), (-2, None)] {
            options.values.set(THREADS, OptionValue::Int(number)).unwrap();
            assert_eq!(options.threads(), threads);
        }
        options.values.set(PROFILING, OptionValue::Bool(true)).unwrap();
        assert_eq!(options.profile_prefix(), Some("onnxruntime_profile_".into()));
        assert_eq!(options.optimized_model(), None);
        options.values.set(OPTIMIZED_MODEL, OptionValue::Text("a.onnx".into())).unwrap();
        assert_eq!(options.optimized_model(), Some("a.onnx".into()));
        options.values.add_entry("session.set_denormal_as_zero".into(), "1".into());
        let [warning] = &options.warnings()[..] else { panic!("{:?}", options.warnings()) };
        assert!(warning.contains("'session.set_denormal_as_zero' = '1' has no effect"));
        options.fix_size("N".into(), 3);
        options.fix_size("N".into(), 4);
        assert_eq!(options.sizes, [("N".to_string(), 4)]);
    }

    #[test]
    fn weights_from_outside_are_checked_when_they_are_given() {
        let mut options = SessionOptions::<u8>::default();
        options.add_initializer("w".into(), 1).unwrap();
        let error = options.add_initializer("w".into(), 2).unwrap_err();
        assert_eq!((error.status, error.kind), (Status::InvalidArgument, ErrorKind::Argument));
        assert_eq!(error.message, "the initializer 'w' was given before");
        let error = options.add_external_initializers(vec!["w".into()], vec![]).unwrap_err();
        assert_eq!(error.message, "there are 1 names and 0 values");
        let name = ["w.bin".to_string()];
        for (sizes, lengths, words) in [
            (&[][..], &[3][..], "1 names and 0 buffers"),
            (&[3], &[], "1 names and 0 lengths"),
            (&[3], &[4], "is 4, but its buffer has 3 bytes"),
            (&[3], &[-1], "is -1, but its buffer has 3 bytes"),
        ] {
            let error = file_lengths(&name, sizes, lengths).unwrap_err();
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(file_lengths(&name, &[3], &[2]).unwrap(), [2]);
    }
}
