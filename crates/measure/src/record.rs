//! The data written to disk: the types of `results.json` and of `load --json`.
//!
//! `lab` and `load` fill these, `analysis` adds the verdicts, the reports only read. The JSON is a
//! contract (DESIGN.md, section 1): times end in `_ns`, sizes in `_bytes`, rates in `_per_s`;
//! fields are added, never renamed. A reader ignores fields it does not know, so the rounds of a
//! newer version still open; verdicts can be had again from them.

mod measure;
mod round;
mod comparison;
mod phases;
mod flame_graph;
mod load;

pub use comparison::{Advice, Choice, CostDifference, CostPart, FrontEntry, Recommendation};
pub use comparison::{
    Analysis, Coexistence, ComparisonRecord, Engine, InterimSettings, MeasureComparisons,
    PoolsEffect, QuestionVerdict, Settings, Subject, UnpinnedMemory, Verdicts,
};
pub use comparison::{LoadSteadiness, LoadWarmUp};
pub use comparison::{MarginClass, MarginError, Margins};
pub use comparison::{Regression, RegressionBy, RegressionQuestion};
pub use flame_graph::{FlameFunction, FlameGraph, FlameKind};
pub use load::LoadCookies;
pub use load::LoadOutage;
pub use load::{ClassHistograms, LoadErrors, LoadHistograms, LoadReport, LoadStatus, LoadVerdict};
pub use load::{CurvePoint, SearchEnd, SearchReport, SearchStep, StepOutcome};
pub use load::{LoadClass, LoadTls, WrongAnswers};
pub use load::{LoadRateWindow, RateWindowEnd};
pub use load::{LoadSecond, RunPart};
pub use load::{SentRequest, SentRequests, SentScript, SentTls};
pub use measure::RecordError;
pub use measure::{BlockCheck, CORE_DISTANCE_CHANGE_MIN, PacedColumns, SliceColumns};
pub use measure::{Measure, MeasureParseError, Operation, Quantity, Unit};
pub use phases::FoundLimit;
pub use phases::{CoursePhase, MemoryCourse, MemoryGrowth, MemorySeries};
pub use phases::{
    Floor, GrowthCause, MemoryParts, PhaseEnd, PhaseHeap, PhaseKind, PhasePlan, PhaseSpec,
    PhasesAnswer, RoundsEstimate,
};
pub use phases::{HeapProfile, LifetimeClass, SizeClass};
pub use phases::{SettingAnswer, SettingEffect, SettingsFront};
pub use round::CustomQuantity;
pub use round::{
    CandidateRounds, LatencyCurve, Library, NoiseFlag, NoiseKind, PoolSetting, Role, RoundMeasures,
    RoundStatus, SteadyState,
};
pub use round::{FailureCause, LeftOut, LeftOutWhen, signal_name};
pub use round::{HeapUse, Held, Holder, Reach};
pub use round::{
    LoadAddress, LoadConnectionSet, LoadConnectionSets, LoadConnectionsOpen, LoadSpread,
};
pub use round::{LoadFailure, LoadFailureExample, LoadFailureKind};

/// Version of the record's layout. Grows when a field changes meaning, not when one is added.
pub const FORMAT_VERSION: u32 = 1;
