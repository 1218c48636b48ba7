//! `sardonyx explain`: explains how a model is optimized before it runs, or what a finding of
//! `check` means.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use sardonyx::device::DeviceOptions;
use sardonyx::tool::SessionExt;
use sardonyx::tool::filling::{OpenDim, Sizes};
use sardonyx::tool::profile::{Fusion, RunDetails, StateUse, StepDetails, StepInfo};
use sardonyx::{Port, Session, Type, tool};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::filling::note_assumed;
use crate::human::{self, Align, cut_line, format_columns, format_count};
use crate::model_arg::{Limits, ModelArg};
use crate::operator_name::qualified_name;
use crate::session::{self, Opened, SessionArgs};
use crate::steps::{format_layout, format_operator, step_info_json, step_json};
use crate::terminal::Terminal;
use crate::timing::to_millis;
use crate::{check, rules, train};

/// Explain how a model is optimized before it runs, or what a finding of `check` means
///
/// For a model: which nodes are upgraded, constant-folded and fused, which fusions were almost
/// possible and why they were not, which constants would be packed, and how much memory is planned.
/// For the code of a finding, such as unknown-operator, or the id of a rule, such as GRAPH-02: its
/// meaning and its place in the standard. Without an argument, all codes are listed.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX file, binary or text, or - for stdin; or the code of a finding or the id of a rule
    #[arg(value_name = "MODEL|CODE")]
    what: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    session: SessionArgs,
    /// Explain the training step of this entry of the training information, from 0, instead of the
    /// main graph. State variables are inputs
    #[arg(long, value_name = "ENTRY")]
    training_step: Option<usize>,
    /// List the steps of a run and their kernels
    #[arg(long)]
    steps: bool,
    /// Show the program before kernels are selected: values, operations with the nodes fused into
    /// them, and fusions that were almost possible
    #[arg(long)]
    program: bool,
    /// Show the program after REWRITE instead of after all rewrites; `lowering` is before the first
    #[arg(long, value_name = "REWRITE", requires = "program", value_parser = list_stages())]
    after: Option<String>,
    /// Show how the model runs on the devices of a configuration: which device runs each node and
    /// in which parts, which values are sent, and which annotations are not honored and why
    #[arg(long, conflicts_with_all = ["program", "steps"])]
    devices: bool,
    /// Name of the device configuration; by default the only one of the model
    #[arg(long, value_name = "NAME", requires = "devices")]
    configuration: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the possible values of `--after`, each with its description: lowering and all rewrites.
fn list_stages() -> PossibleValuesParser {
    let lowering = ("lowering", "Maps each node to one step.");
    let stages = std::iter::once(lowering).chain(tool::rewrites());
    PossibleValuesParser::new(stages.map(|(name, about)| PossibleValue::new(name).help(about)))
}

/// Name and version of the schema of `explain MODEL --json`. The version rises when the meaning of
/// a key changes, not when a key is added.
const SCHEMA: &str = "sardonyx.explain-model/1";
/// Name and version of the schema of `explain MODEL --program --json`.
const PROGRAM_SCHEMA: &str = "sardonyx.program/1";
/// Name and version of the schema of `explain MODEL --devices --json`.
const DEVICES_SCHEMA: &str = "sardonyx.explain-devices/1";
/// Maximum number of rows to list in each section of the explanation.
const SHOWN: usize = 12;

pub(crate) fn explain(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let Some(what) = &args.what else {
        return check::explain(None, None, args.json, terminal);
    };
    let name = what.to_str();
    let codes = name.map(check::find_codes).unwrap_or_default();
    let rule = name.and_then(rules::find_rule);
    if rule.is_some() || !codes.is_empty() {
        return check::explain(rule, Some(&codes), args.json, terminal);
    }
    if !(name == Some("-") || what.exists()) {
        let what = what.display().to_string();
        let failure = Failure::new(format!("no finding and no file '{what}' exists"));
        let names = tool::CODES.iter().map(|code| code.name);
        return Err(match tool::suggest::closest(&what, names) {
            Some(near) => failure.help(format!("did you mean '{near}'?")),
            None => failure.help(
                "give a model file or the code of a finding; `sardonyx explain` lists all codes",
            ),
        });
    }
    let model = ModelArg { path: what.clone(), limits: args.limits.clone() };
    if args.devices {
        return explain_devices(args, &model, terminal);
    }
    let last = tool::rewrites().last().map_or("lowering", |(name, _)| name);
    let after = args.program.then(|| args.after.as_deref().unwrap_or(last));
    let Opened { session, sizes, .. } =
        args.session.open_to_inspect(&model, args.training_step, after, terminal)?;
    if let Some(program) = session.program() {
        if args.json {
            let lines: Vec<&str> = program.lines().collect();
            return terminal.json(&json!({ "schema": PROGRAM_SCHEMA, "program": lines }), true);
        }
        return terminal.print(program.trim_end());
    }
    let inputs = resolve_input_types(&sizes, session.inputs(), terminal);
    let details = session.details(filter_known_types(&inputs)).map_err(Failure::from);
    let state = session.explain_state(&filter_known_types(&inputs)).unwrap_or_default();
    let name = model.name();
    let explanation =
        Explanation { name, session: &session, steps: session.steps(), inputs, details, state };
    if args.json {
        terminal.json(&explanation.json(args.steps), true)
    } else {
        terminal.print(&explanation.text(args.steps))
    }
}

/// Prints the plan by which a model runs on several devices.
fn explain_devices(args: &Args, model: &ModelArg, terminal: &Terminal) -> Result<(), Failure> {
    let mut options = DeviceOptions::new();
    if let Some(name) = &args.configuration {
        options = options.configuration(name);
    }
    let opened = args.session.open(model, true, terminal)?;
    let sizes = &opened.sizes;
    let plan = match args.training_step {
        None => {
            let session = args.session.prepare_devices(&opened.model, sizes, options)?;
            note_open_sizes(sizes, session.inputs(), terminal);
            // Sizes that are not set stay open, so that the plan holds for all of them.
            let inputs = session.inputs().iter();
            let inputs = inputs.filter_map(|port| apply_set_sizes(port, &sizes.open));
            session.plan(&inputs.collect::<Vec<_>>())?
        }
        Some(entry) => {
            let builder = args.session.build_trainer(&opened.model)?.devices(options);
            let trainer = builder.outputs(train::find_outputs_to_show(&opened.model)).build()?;
            let ports: Vec<Port> = trainer.step_inputs(entry)?.cloned().collect();
            let inputs = resolve_input_types(sizes, &ports, terminal);
            trainer.plan(entry, &filter_known_types(&inputs))?
        }
    };
    let text = plan.text();
    if args.json {
        let lines: Vec<&str> = text.lines().collect();
        let facts = plan.facts();
        let refused = plan
            .not_honored()
            .iter()
            .map(|note| json!({"tensor": note.tensor, "reason": note.why}));
        let answer = json!({
            "schema": DEVICES_SCHEMA,
            "model": model.name(),
            "configuration": plan.configuration(),
            "devices": plan.devices(),
            "moves": facts.moves,
            "bytes": plan.bytes(),
            "nodes_in_parts": facts.in_parts,
            "nodes_with_partial_results": facts.partial,
            "not_honored": refused.collect::<Vec<_>>(),
            "plan": lines,
        });
        return terminal.json(&answer, true);
    }
    terminal.print(&text)
}

/// Prints a note that lists the input dimensions without a set size. A plan for all sizes does not
/// split their axes, while a run is planned for its own sizes and may split them.
fn note_open_sizes(set: &session::Sizes, ports: &[Port], terminal: &Terminal) {
    /// Maximum number of dimensions to list.
    const SHOWN: usize = 8;
    let mut open: Vec<String> = Vec::new();
    for port in ports {
        let shape = port.ty().and_then(Type::shape);
        for (axis, dim) in shape.into_iter().flatten().enumerate() {
            if dim.is_unknown() {
                let is_set =
                    set.open.iter().any(|one| one.input == port.name() && one.axis == axis);
                if !is_set {
                    open.push(format!("{}[{axis}]", port.name()));
                }
            } else {
                for name in dim.symbols() {
                    if set.fixed.iter().all(|(fixed, _)| *fixed != name) {
                        open.push(name);
                    }
                }
            }
        }
    }
    let mut seen = HashSet::new();
    open.retain(|name| seen.insert(name.clone()));
    if let Some(first) = open.first() {
        let more = if open.len() > SHOWN { ", …" } else { "" };
        terminal.note(&format!(
            "the plan does not split axes whose sizes are not set: {}{more}; --set \
             '{first}=SIZE' shows the plan of a run with that size",
            open[..open.len().min(SHOWN)].join(", ")
        ));
    }
}

/// Returns the name and type of an input with the sizes that `--set` gives for its unnamed
/// dimensions. Returns `None` if it gives no size.
fn apply_set_sizes<'p>(port: &'p Port, set: &[OpenDim]) -> Option<(&'p str, Type)> {
    let mut own = set.iter().filter(|one| one.input == port.name()).peekable();
    own.peek()?;
    let (elem, mut dims) = (port.ty()?.elem()?, port.ty()?.shape()?.to_vec());
    for one in own {
        *dims.get_mut(one.axis)? = one.size.into();
    }
    Some((port.name(), Type::tensor(elem, dims)))
}

/// Returns the types of inputs for which memory is planned: every symbolic dimension is replaced by
/// a number. Prints a note on sizes that are assumed.
fn resolve_input_types(
    sizes: &session::Sizes,
    ports: &[Port],
    terminal: &Terminal,
) -> Vec<(String, Option<Type>)> {
    let options = sizes.to_fill_options();
    let mut sizes = Sizes::new(&options, ports, &[]);
    let types = ports.iter().map(|port| {
        let ty = port.ty().map(|ty| match (ty.elem(), ty.shape()) {
            (Some(elem), Some(shape)) => Type::tensor(elem, sizes.resolve_shape(port, shape)),
            _ => ty.clone(),
        });
        (port.name().to_string(), ty)
    });
    let types = types.collect();
    note_assumed(sizes.list_assumed(), terminal);
    types
}

/// Returns the name and type of each input whose type is known.
fn filter_known_types(inputs: &[(String, Option<Type>)]) -> Vec<(&str, Type)> {
    inputs.iter().filter_map(|(name, ty)| Some((name.as_str(), ty.clone()?))).collect()
}

/// Facts about an optimized model that `explain MODEL` lists.
struct Explanation<'a> {
    name: String,
    session: &'a Session,
    steps: Vec<StepInfo>,
    inputs: Vec<(String, Option<Type>)>,
    details: Result<RunDetails, Failure>,
    /// State that runs can keep, and the reasons why they copy it, by name of the input.
    state: Vec<(String, StateUse)>,
}

/// Fusions of the same pattern, which are listed in one row.
struct Group {
    /// Number of fusions.
    times: usize,
    /// Number of nodes that were fused.
    nodes: usize,
    /// Name or location of the first fused node, as an example.
    example: String,
}

/// Groups fusions by pattern and by the reason that prevented them, the most frequent first.
/// Fusions that were made have no reason.
fn group_fusions<'a>(
    fusions: impl Iterator<Item = &'a Fusion>,
) -> Vec<((&'static str, Option<&'a str>), Group)> {
    let mut found: BTreeMap<(&'static str, Option<&str>), Group> = BTreeMap::new();
    for fusion in fusions {
        let key = (fusion.pattern, fusion.why_not.as_deref());
        let group = found.entry(key).or_insert_with(|| Group {
            times: 0,
            nodes: 0,
            example: fusion.place.clone(),
        });
        group.times += 1;
        group.nodes += fusion.nodes;
    }
    let mut groups: Vec<_> = found.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.times));
    groups
}

/// Numbers of steps by the way in which they use memory.
struct Memory {
    /// Steps whose output is a view of their input, so that they never run.
    views: usize,
    /// Steps that write their output over an input.
    in_place: usize,
    /// Steps that read an input through strides.
    strided: usize,
    /// Steps whose tensors have the channels as last dimension in memory.
    channels_last: usize,
    /// Steps that copy although their output could be a view.
    copies: usize,
}

impl Memory {
    /// Counts the steps of a planned run.
    fn from_details(details: &RunDetails) -> Memory {
        let count = |which: fn(&StepDetails) -> bool| {
            let steps = details.steps.iter();
            steps.filter(|step| which(step)).count()
        };
        Memory {
            views: count(|step| step.is_view),
            in_place: count(|step| step.in_place),
            strided: count(|step| step.strided),
            channels_last: count(|step| step.channels_last),
            copies: count(|step| step.copies),
        }
    }
}

impl Explanation<'_> {
    /// Returns groups of the fusions that were made, and of those that were almost possible.
    fn group_all_fusions(&self) -> [Vec<((&'static str, Option<&str>), Group)>; 2] {
        let all = || self.session.fusions().iter();
        [
            group_fusions(all().filter(|fusion| fusion.nodes > 0)),
            group_fusions(all().filter(|fusion| fusion.nodes == 0)),
        ]
    }

    /// Groups the steps into which other nodes were fused by their operators, such as
    /// `Conv with Relu`, the most frequent first.
    fn group_fused_steps(&self) -> Vec<(String, Group)> {
        let mut found: BTreeMap<String, Group> = BTreeMap::new();
        for step in self.steps.iter().filter(|step| !step.with.is_empty()) {
            let group = found.entry(format_operator(step)).or_insert_with(|| Group {
                times: 0,
                nodes: 0,
                example: step.node.clone(),
            });
            group.times += 1;
            group.nodes += step.with.len();
        }
        let mut groups: Vec<_> = found.into_iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.times));
        groups
    }

    fn text(&self, with_steps: bool) -> String {
        let report = self.session.report();
        let mut lines = Lines(format!(
            "{}: {} become {}\n\n",
            self.name,
            format_count(report.nodes, "node"),
            format_count(self.steps.len(), "step")
        ));
        self.write_rewrites(&mut lines);
        self.write_fusions(&mut lines);
        lines.add_row(
            "constants",
            format!(
                "{} packed for kernels, {}; {} read without packing, {}",
                human::group_digits(report.packed as u64),
                human::format_bytes(report.packed_bytes as u64),
                human::group_digits(report.kept as u64),
                human::format_bytes(report.kept_bytes as u64)
            ),
        );
        if report.made_bytes > 0 {
            let made = human::format_bytes(report.made_bytes as u64);
            lines.add_row("", format!("{made} of the constants are not stored in the file"));
        }
        self.write_memory(&mut lines);
        self.write_state(&mut lines);
        let took = report.took.iter();
        let took: Vec<String> =
            took.map(|(part, took)| format!("{part} {:.1}", to_millis(*took))).collect();
        lines.add_row("took", format!("{} ms", took.join(", ")));
        let Lines(mut text) = lines;
        if with_steps {
            text += "\n";
            text += &self.format_steps();
        }
        text
    }

    /// Writes the changes before fusion: expanded, upgraded, duplicate and constant-folded nodes.
    fn write_rewrites(&self, lines: &mut Lines) {
        let report = self.session.report();
        if !report.expanded.is_empty() {
            let calls = report.expanded.values().sum();
            lines.add_row(
                "expanded",
                format!("{} replaced by its function body", format_count(calls, "node")),
            );
            for ((domain, name), calls) in report.expanded.iter().take(SHOWN) {
                lines.add_row("", format!("{calls:>5}  {}", qualified_name(domain, name)));
            }
            lines.add_omitted_count(report.expanded.len());
        }
        let upgraded: usize = report.upgraded.iter().map(|group| group.nodes).sum();
        match upgraded {
            0 => lines
                .add_row("upgraded", "nothing: every node has the newest operator version".into()),
            _ => lines.add_row(
                "upgraded",
                format!(
                    "{} to newer operator versions, {} added by upgrading",
                    format_count(upgraded, "node"),
                    report.added
                ),
            ),
        }
        for group in report.upgraded.iter().take(SHOWN) {
            let op = qualified_name(group.domain, group.op);
            let (from, to, nodes) = (group.from, group.to, group.nodes);
            lines.add_row("", format!("{nodes:>5}  {op}, from opset {from} to {to}"));
        }
        lines.add_omitted_count(report.upgraded.len());
        lines.add_row(
            "cse",
            match (report.common.nodes, report.common.constants) {
                (0, 0) => "nothing".to_string(),
                (nodes, constants) => format!(
                    "{} and {} removed as duplicates",
                    format_count(nodes, "node"),
                    format_count(constants, "initializer")
                ),
            },
        );
        lines.add_row(
            "folded",
            format!(
                "{} constant-folded, {}; {} replaced by initializers",
                format_count(report.folded - report.constant_nodes, "node"),
                human::format_bytes(report.folded_bytes as u64),
                format_count(report.constant_nodes, "Constant node")
            ),
        );
    }

    /// Writes the fusions that were made, the fusions that were almost possible, and dead nodes.
    fn write_fusions(&self, lines: &mut Lines) {
        let report = self.session.report();
        let [fused, nearly] = self.group_all_fusions();
        let gone: usize = fused.iter().map(|(_, group)| group.nodes - group.times).sum();
        let times: usize = fused.iter().map(|(_, group)| group.times).sum();
        lines.add_row(
            "fused",
            match times {
                0 => "nothing".to_string(),
                _ => format!("{} became {times}", format_count(gone + times, "node")),
            },
        );
        for ((pattern, _), group) in &fused {
            let (times, example) = (group.times, cut_line(&group.example));
            let size = if group.nodes.is_multiple_of(times) {
                format!("{} nodes each", group.nodes / times)
            } else {
                format!("{} nodes in total", group.nodes)
            };
            lines.add_row("", format!("{times:>5}  {pattern}, {size}, such as {example}"));
        }
        if !nearly.is_empty() {
            let times = nearly.iter().map(|(_, group)| group.times).sum();
            lines.add_row("nearly", format!("{} almost fused:", format_count(times, "node")));
            for ((pattern, why), group) in nearly.iter().take(SHOWN) {
                let (times, example) = (group.times, cut_line(&group.example));
                let why = cut_line(why.unwrap_or_default());
                lines.add_row("", format!("{times:>5}  {pattern}: {why}; such as {example}"));
            }
            lines.add_omitted_count(nearly.len());
        }
        let groups = self.group_fused_steps();
        let times: usize = groups.iter().map(|(_, group)| group.nodes).sum();
        lines.add_row(
            "steps",
            match times {
                0 => "nothing".to_string(),
                _ => format!("{} fused into the step of another node", format_count(times, "node")),
            },
        );
        for (operators, group) in groups.iter().take(SHOWN) {
            let (times, example) = (group.times, cut_line(&group.example));
            lines.add_row("", format!("{times:>5}  {operators}, such as '{example}'"));
        }
        lines.add_omitted_count(groups.len());
        if report.dead > 0 {
            let dead = format_count(report.dead, "node");
            lines.add_row("dead", format!("{dead} removed as unused"));
        }
    }

    /// Writes the size of the arena for intermediate values and the use of memory by steps.
    fn write_memory(&self, lines: &mut Lines) {
        match &self.details {
            Err(failure) => lines.add_row("memory", format!("unknown: {}", failure.message())),
            Ok(details) => {
                let memory = Memory::from_details(details);
                let inputs = self.inputs.iter().take(SHOWN).map(|(name, ty)| match ty {
                    Some(ty) => format!("{name}: {ty}"),
                    None => name.clone(),
                });
                let inputs = inputs.collect::<Vec<_>>().join(", ");
                let arena = details.arena_bytes as u64;
                let saved = details.unshared_bytes.saturating_sub(arena);
                let reuse = match saved {
                    0 => String::new(),
                    _ => format!("; reusing memory saves {}", human::format_bytes(saved)),
                };
                let inputs = if inputs.is_empty() { "no inputs" } else { &inputs };
                let arena = human::format_bytes(arena);
                lines.add_row(
                    "memory",
                    format!("{arena} for intermediate values{reuse}; for {inputs}"),
                );
                lines.add_row(
                    "",
                    format!(
                        "{} steps are views and never run, {} work in place, {} read through strides, {} have channels last, {} copy data that could be a view",
                        memory.views,
                        memory.in_place,
                        memory.strided,
                        memory.channels_last,
                        memory.copies
                    ),
                );
            }
        }
    }

    /// Writes how runs keep state: pairs of an output and the input that it becomes.
    fn write_state(&self, lines: &mut Lines) {
        if self.state.is_empty() {
            return;
        }
        let appended = self.state.iter().filter(|(_, used)| used.is_appended).count();
        let replaced = self.state.len() - appended;
        lines.add_row(
            "state",
            format!(
                "{} can be kept between runs: {appended} appended to in place, {replaced} replaced",
                format_count(self.state.len(), "input")
            ),
        );
        let each = self.state.iter();
        let copies = each.flat_map(|(name, used)| used.copies.iter().map(move |why| (name, why)));
        let copies: Vec<_> = copies.collect();
        for (name, why) in copies.iter().take(SHOWN) {
            lines.add_row("", format!("'{name}' {why}"));
        }
        if copies.len() > SHOWN {
            lines.add_row("", format!("and {} more", copies.len() - SHOWN));
        }
    }

    /// Formats the steps of a run as a table.
    fn format_steps(&self) -> String {
        let headings = [
            ("step", Align::Right),
            ("node", Align::Left),
            ("operator", Align::Left),
            ("layout", Align::Left),
            ("multiply-adds", Align::Right),
            ("kernel", Align::Left),
        ];
        let details = self.details.as_ref().ok();
        let rows = self.steps.iter().enumerate().map(|(index, step)| {
            let details = details.and_then(|details| details.steps.get(index));
            let work = details.and_then(|step| step.multiply_adds);
            let work = work.filter(|work| *work > 0);
            vec![
                index.to_string(),
                cut_line(&step.node),
                format_operator(step),
                details.map(format_layout).unwrap_or_default(),
                work.map(human::group_digits).unwrap_or_default(),
                cut_line(&step.kernel),
            ]
        });
        format_columns(&headings, &rows.collect::<Vec<_>>())
    }

    fn json(&self, with_steps: bool) -> Value {
        let report = self.session.report();
        let expanded = report.expanded.iter().map(
            |((domain, name), nodes)| json!({"domain": domain, "operator": name, "nodes": nodes}),
        );
        let upgraded = report.upgraded.iter().map(|group| {
            json!({
                "domain": group.domain,
                "operator": group.op,
                "from": group.from,
                "to": group.to,
                "nodes": group.nodes,
            })
        });
        let [fused, nearly] = self.group_all_fusions();
        let fused = fused.iter().map(|((pattern, _), group)| {
            json!({
                "pattern": pattern,
                "times": group.times,
                "nodes": group.nodes,
                "example": group.example,
            })
        });
        let nearly = nearly.iter().map(|((pattern, why), group)| {
            json!({
                "pattern": pattern,
                "reason": why,
                "times": group.times,
                "example": group.example,
            })
        });
        let fused_steps = self.session.fused_steps();
        let fused_steps = fused_steps.iter().map(|(by, node)| json!({"node": node, "by": by}));
        let took = report.took.iter();
        let took: Map<String, Value> =
            took.map(|(part, took)| (part.to_string(), json!(to_millis(*took)))).collect();
        let memory = match &self.details {
            Ok(details) => {
                let memory = Memory::from_details(details);
                let inputs = self.inputs.iter().map(
                    |(name, ty)| json!({"name": name, "type": ty.as_ref().map(Type::to_string)}),
                );
                json!({
                    "inputs": inputs.collect::<Vec<_>>(),
                    "arena_bytes": details.arena_bytes,
                    "unshared_bytes": details.unshared_bytes,
                    "views": memory.views,
                    "in_place": memory.in_place,
                    "strided": memory.strided,
                    "channels_last": memory.channels_last,
                    "copies": memory.copies,
                })
            }
            Err(failure) => json!({"problem": failure.message()}),
        };
        let state = self.state.iter().map(|(name, used)| {
            json!({"input": name, "appended": used.is_appended, "copies": used.copies})
        });
        let mut answer = json!({
            "schema": SCHEMA,
            "model": self.name,
            "threads": self.session.threads(),
            "instruction_set": self.session.instruction_set(),
            "nodes": report.nodes,
            "step_count": self.steps.len(),
            "expanded": expanded.collect::<Vec<_>>(),
            "upgraded": upgraded.collect::<Vec<_>>(),
            "added": report.added,
            "cse": {"nodes": report.common.nodes, "constants": report.common.constants},
            "folded": {
                "nodes": report.folded - report.constant_nodes,
                "constant_nodes": report.constant_nodes,
                "bytes": report.folded_bytes,
            },
            "fused": fused.collect::<Vec<_>>(),
            "nearly_fused": nearly.collect::<Vec<_>>(),
            "fused_steps": fused_steps.collect::<Vec<_>>(),
            "dead": report.dead,
            "packed": {"constants": report.packed, "bytes": report.packed_bytes},
            "kept": {"constants": report.kept, "bytes": report.kept_bytes},
            "made_bytes": report.made_bytes,
            "memory": memory,
            "took_ms": took,
        });
        if !self.state.is_empty() {
            answer["state"] = state.collect();
        }
        if with_steps {
            let details = self.details.as_ref().ok();
            let steps = self.steps.iter().enumerate().map(|(index, step)| {
                match details.and_then(|details| details.steps.get(index)) {
                    Some(details) => Value::Object(step_json(step, details)),
                    None => Value::Object(step_info_json(step)),
                }
            });
            answer["steps"] = steps.collect();
        }
        answer
    }
}

/// Text in rows of two columns: labels and their content.
struct Lines(String);

impl Lines {
    /// Adds a row with the label `name` and the content `rest`. A row without a label continues the
    /// row above.
    fn add_row(&mut self, name: &str, rest: String) {
        self.0 += &format!("{name:<9} {rest}\n");
    }

    /// Adds a row that states how many of `rows` rows are not listed, if there are more than
    /// [`SHOWN`].
    fn add_omitted_count(&mut self, rows: usize) {
        if rows > SHOWN {
            self.add_row("", format!("    ... and {} more", rows - SHOWN));
        }
    }
}
