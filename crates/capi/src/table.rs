//! The table of functions that the C header declares as `OrtApi`, and the smaller tables beside it.
//!
//! Functions are only added to the table, at its end, so a client of an older version uses a prefix
//! of it. Names, order and versions are facts of the C header, as the crate `ort-sys` has them.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use crate::failure::{StatusPointer, refuse, to_c_string};
use crate::{
    arenas, binding, editor, environment, failure, memory, options, pairs, providers, run, session,
    strings, types, values,
};

/// Newest version of the table.
pub(crate) const NEWEST_VERSION: u32 = 31;

/// Function of a table.
#[derive(Debug, Clone, Copy)]
pub struct EntryInfo {
    /// Name in the C header.
    pub name: &'static str,
    /// First version of the table with the function; 17 also for those of older versions.
    pub since: u32,
    /// Whether the function follows the header. All others return a status that names them,
    /// or nothing.
    pub is_real: bool,
}

/// Address of a function, whose type depends on its place in the table.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Address(*const ());

// SAFETY: addresses of functions never change.
#[allow(unsafe_code)]
unsafe impl Sync for Address {}

/// Returns zero: a null pointer, the number 0, or nothing.
///
/// Functions of the C calling convention ignore arguments that they do not declare, as the caller
/// cleans the stack up on all systems that Sardonyx is built for.
extern "C" fn do_nothing() -> usize {
    0
}

/// Whether the function of a row follows the header.
macro_rules! is_real {
    (refused) => {
        false
    };
    (nothing) => {
        false
    };
    ($function:tt) => {
        true
    };
}

/// Address of the function of a row: its own, one that refuses, or one that does nothing.
macro_rules! address {
    ($name:ident refused) => {{
        extern "C" fn refuse_call() -> StatusPointer {
            refuse(stringify!($name))
        }
        Address(refuse_call as *const ())
    }};
    ($name:ident nothing) => {
        Address(do_nothing as *const ())
    };
    ($name:ident ($function:path)) => {
        Address($function as *const ())
    };
}

/// Makes the table and the list of its functions of rows: name, version, function.
macro_rules! entries {
    ($($name:ident $since:literal $function:tt;)*) => {
        /// All functions of the table, in order.
        pub static ENTRIES: &[EntryInfo] = &[
            $(EntryInfo {
                name: stringify!($name),
                since: $since,
                is_real: is_real!($function),
            },)*
        ];

        /// The table.
        pub(crate) static TABLE: [Address; ENTRY_COUNT] = [$(address!($name $function),)*];
    };
}

/// Number of functions in the table.
pub const ENTRY_COUNT: usize = 428;

entries! {
    CreateStatus 17 (failure::create_status);
    GetErrorCode 17 (failure::get_error_code);
    GetErrorMessage 17 (failure::get_error_message);
    CreateEnv 17 (environment::create_env);
    CreateEnvWithCustomLogger 17 (environment::create_env_with_custom_logger);
    EnableTelemetryEvents 17 (environment::enable_telemetry_events);
    DisableTelemetryEvents 17 (environment::disable_telemetry_events);
    CreateSession 17 (session::create_session);
    CreateSessionFromArray 17 (session::create_session_from_array);
    Run 17 (run::run_session);
    CreateSessionOptions 17 (options::create_session_options);
    SetOptimizedModelFilePath 17 (options::set_optimized_model_file_path);
    CloneSessionOptions 17 (options::clone_session_options);
    SetSessionExecutionMode 17 (options::set_session_execution_mode);
    EnableProfiling 17 (options::enable_profiling);
    DisableProfiling 17 (options::disable_profiling);
    EnableMemPattern 17 (options::enable_mem_pattern);
    DisableMemPattern 17 (options::disable_mem_pattern);
    EnableCpuMemArena 17 (options::enable_cpu_mem_arena);
    DisableCpuMemArena 17 (options::disable_cpu_mem_arena);
    SetSessionLogId 17 (options::set_session_log_id);
    SetSessionLogVerbosityLevel 17 (options::set_session_log_verbosity_level);
    SetSessionLogSeverityLevel 17 (options::set_session_log_severity_level);
    SetSessionGraphOptimizationLevel 17 (options::set_session_graph_optimization_level);
    SetIntraOpNumThreads 17 (options::set_intra_op_num_threads);
    SetInterOpNumThreads 17 (options::set_inter_op_num_threads);
    CreateCustomOpDomain 17 refused;
    CustomOpDomain_Add 17 refused;
    AddCustomOpDomain 17 refused;
    RegisterCustomOpsLibrary 17 (options::register_custom_ops_library);
    SessionGetInputCount 17 (session::session_get_input_count);
    SessionGetOutputCount 17 (session::session_get_output_count);
    SessionGetOverridableInitializerCount 17 (session::session_get_overridable_initializer_count);
    SessionGetInputTypeInfo 17 (session::session_get_input_type_info);
    SessionGetOutputTypeInfo 17 (session::session_get_output_type_info);
    SessionGetOverridableInitializerTypeInfo 17 (session::session_get_overridable_initializer_type_info);
    SessionGetInputName 17 (session::session_get_input_name);
    SessionGetOutputName 17 (session::session_get_output_name);
    SessionGetOverridableInitializerName 17 (session::session_get_overridable_initializer_name);
    CreateRunOptions 17 (options::create_run_options);
    RunOptionsSetRunLogVerbosityLevel 17 (options::run_options_set_run_log_verbosity_level);
    RunOptionsSetRunLogSeverityLevel 17 (options::run_options_set_run_log_severity_level);
    RunOptionsSetRunTag 17 (options::run_options_set_run_tag);
    RunOptionsGetRunLogVerbosityLevel 17 (options::run_options_get_run_log_verbosity_level);
    RunOptionsGetRunLogSeverityLevel 17 (options::run_options_get_run_log_severity_level);
    RunOptionsGetRunTag 17 (options::run_options_get_run_tag);
    RunOptionsSetTerminate 17 (options::run_options_set_terminate);
    RunOptionsUnsetTerminate 17 (options::run_options_unset_terminate);
    CreateTensorAsOrtValue 17 (values::create_tensor_as_ort_value);
    CreateTensorWithDataAsOrtValue 17 (values::create_tensor_with_data_as_ort_value);
    IsTensor 17 (values::is_tensor);
    GetTensorMutableData 17 (values::get_tensor_mutable_data);
    FillStringTensor 17 (strings::fill_string_tensor);
    GetStringTensorDataLength 17 (strings::get_string_tensor_data_length);
    GetStringTensorContent 17 (strings::get_string_tensor_content);
    CastTypeInfoToTensorInfo 17 (types::cast_type_info_to_tensor_info);
    GetOnnxTypeFromTypeInfo 17 (types::get_onnx_type_from_type_info);
    CreateTensorTypeAndShapeInfo 17 (types::create_tensor_type_and_shape_info);
    SetTensorElementType 17 (types::set_tensor_element_type);
    SetDimensions 17 (types::set_dimensions);
    GetTensorElementType 17 (types::get_tensor_element_type);
    GetDimensionsCount 17 (types::get_dimensions_count);
    GetDimensions 17 (types::get_dimensions);
    GetSymbolicDimensions 17 (types::get_symbolic_dimensions);
    GetTensorShapeElementCount 17 (types::get_tensor_shape_element_count);
    GetTensorTypeAndShape 17 (values::get_tensor_type_and_shape);
    GetTypeInfo 17 (values::get_type_info);
    GetValueType 17 (values::get_value_type);
    CreateMemoryInfo 17 (memory::create_memory_info);
    CreateCpuMemoryInfo 17 (memory::create_cpu_memory_info);
    CompareMemoryInfo 17 (memory::compare_memory_info);
    MemoryInfoGetName 17 (memory::memory_info_get_name);
    MemoryInfoGetId 17 (memory::memory_info_get_id);
    MemoryInfoGetMemType 17 (memory::memory_info_get_mem_type);
    MemoryInfoGetType 17 (memory::memory_info_get_type);
    AllocatorAlloc 17 (memory::allocator_alloc);
    AllocatorFree 17 (memory::allocator_free);
    AllocatorGetInfo 17 (memory::allocator_get_info);
    GetAllocatorWithDefaultOptions 17 (memory::get_allocator_with_default_options);
    AddFreeDimensionOverride 17 (options::add_free_dimension_override);
    GetValue 17 (values::get_value);
    GetValueCount 17 (values::get_value_count);
    CreateValue 17 (values::create_value);
    CreateOpaqueValue 17 refused;
    GetOpaqueValue 17 refused;
    KernelInfoGetAttribute_float 17 refused;
    KernelInfoGetAttribute_int64 17 refused;
    KernelInfoGetAttribute_string 17 refused;
    KernelContext_GetInputCount 17 refused;
    KernelContext_GetOutputCount 17 refused;
    KernelContext_GetInput 17 refused;
    KernelContext_GetOutput 17 refused;
    ReleaseEnv 17 (environment::release_env);
    ReleaseStatus 17 (failure::release_status);
    ReleaseMemoryInfo 17 (memory::release_memory_info);
    ReleaseSession 17 (session::release_session);
    ReleaseValue 17 (values::release_value);
    ReleaseRunOptions 17 (options::release_run_options);
    ReleaseTypeInfo 17 (types::release_type_info);
    ReleaseTensorTypeAndShapeInfo 17 (types::release_tensor_type_and_shape_info);
    ReleaseSessionOptions 17 (options::release_session_options);
    ReleaseCustomOpDomain 17 nothing;
    GetDenotationFromTypeInfo 17 (types::get_denotation_from_type_info);
    CastTypeInfoToMapTypeInfo 17 (types::cast_type_info_to_map_type_info);
    CastTypeInfoToSequenceTypeInfo 17 (types::cast_type_info_to_sequence_type_info);
    GetMapKeyType 17 (types::get_map_key_type);
    GetMapValueType 17 (types::get_map_value_type);
    GetSequenceElementType 17 (types::get_sequence_element_type);
    ReleaseMapTypeInfo 17 (types::release_map_type_info);
    ReleaseSequenceTypeInfo 17 (types::release_sequence_type_info);
    SessionEndProfiling 17 (session::session_end_profiling);
    SessionGetModelMetadata 17 (session::session_get_model_metadata);
    ModelMetadataGetProducerName 17 (session::model_metadata_get_producer_name);
    ModelMetadataGetGraphName 17 (session::model_metadata_get_graph_name);
    ModelMetadataGetDomain 17 (session::model_metadata_get_domain);
    ModelMetadataGetDescription 17 (session::model_metadata_get_description);
    ModelMetadataLookupCustomMetadataMap 17 (session::model_metadata_lookup_custom_metadata_map);
    ModelMetadataGetVersion 17 (session::model_metadata_get_version);
    ReleaseModelMetadata 17 (session::release_model_metadata);
    CreateEnvWithGlobalThreadPools 17 (environment::create_env_with_global_thread_pools);
    DisablePerSessionThreads 17 (options::disable_per_session_threads);
    CreateThreadingOptions 17 (environment::create_threading_options);
    ReleaseThreadingOptions 17 (environment::release_threading_options);
    ModelMetadataGetCustomMetadataMapKeys 17 (session::model_metadata_get_custom_metadata_map_keys);
    AddFreeDimensionOverrideByName 17 (options::add_free_dimension_override_by_name);
    GetAvailableProviders 17 (providers::get_available_providers);
    ReleaseAvailableProviders 17 (providers::release_available_providers);
    GetStringTensorElementLength 17 (strings::get_string_tensor_element_length);
    GetStringTensorElement 17 (strings::get_string_tensor_element);
    FillStringTensorElement 17 (strings::fill_string_tensor_element);
    AddSessionConfigEntry 17 (options::add_session_config_entry);
    CreateAllocator 17 (memory::create_allocator);
    ReleaseAllocator 17 (memory::release_allocator);
    RunWithBinding 17 (binding::run_with_binding);
    CreateIoBinding 17 (binding::create_io_binding);
    ReleaseIoBinding 17 (binding::release_io_binding);
    BindInput 17 (binding::bind_input);
    BindOutput 17 (binding::bind_output);
    BindOutputToDevice 17 (binding::bind_output_to_device);
    GetBoundOutputNames 17 (binding::get_bound_output_names);
    GetBoundOutputValues 17 (binding::get_bound_output_values);
    ClearBoundInputs 17 (binding::clear_bound_inputs);
    ClearBoundOutputs 17 (binding::clear_bound_outputs);
    TensorAt 17 (values::tensor_at);
    CreateAndRegisterAllocator 17 (arenas::create_and_register_allocator);
    SetLanguageProjection 17 (environment::set_language_projection);
    SessionGetProfilingStartTimeNs 17 (session::session_get_profiling_start_time_ns);
    SetGlobalIntraOpNumThreads 17 (environment::set_global_intra_op_num_threads);
    SetGlobalInterOpNumThreads 17 (environment::set_global_inter_op_num_threads);
    SetGlobalSpinControl 17 (environment::set_global_spin_control);
    AddInitializer 17 (options::add_initializer);
    CreateEnvWithCustomLoggerAndGlobalThreadPools 17 (environment::create_env_with_custom_logger_and_global_thread_pools);
    SessionOptionsAppendExecutionProvider_CUDA 17 refused;
    SessionOptionsAppendExecutionProvider_ROCM 17 refused;
    SessionOptionsAppendExecutionProvider_OpenVINO 17 refused;
    SetGlobalDenormalAsZero 17 refused;
    CreateArenaCfg 17 (arenas::create_arena_cfg);
    ReleaseArenaCfg 17 (arenas::release_arena_cfg);
    ModelMetadataGetGraphDescription 17 (session::model_metadata_get_graph_description);
    SessionOptionsAppendExecutionProvider_TensorRT 17 refused;
    SetCurrentGpuDeviceId 17 refused;
    GetCurrentGpuDeviceId 17 refused;
    KernelInfoGetAttributeArray_float 17 refused;
    KernelInfoGetAttributeArray_int64 17 refused;
    CreateArenaCfgV2 17 (arenas::create_arena_cfg_v2);
    AddRunConfigEntry 17 (options::add_run_config_entry);
    CreatePrepackedWeightsContainer 17 (session::create_prepacked_weights_container);
    ReleasePrepackedWeightsContainer 17 (session::release_prepacked_weights_container);
    CreateSessionWithPrepackedWeightsContainer 17 (session::create_session_with_prepacked_weights_container);
    CreateSessionFromArrayWithPrepackedWeightsContainer 17 (session::create_session_from_array_with_prepacked_weights_container);
    SessionOptionsAppendExecutionProvider_TensorRT_V2 17 refused;
    CreateTensorRTProviderOptions 17 refused;
    UpdateTensorRTProviderOptions 17 refused;
    GetTensorRTProviderOptionsAsString 17 refused;
    ReleaseTensorRTProviderOptions 17 nothing;
    EnableOrtCustomOps 17 refused;
    RegisterAllocator 17 refused;
    UnregisterAllocator 17 (arenas::unregister_allocator);
    IsSparseTensor 17 (values::is_sparse_tensor);
    CreateSparseTensorAsOrtValue 17 refused;
    FillSparseTensorCoo 17 refused;
    FillSparseTensorCsr 17 refused;
    FillSparseTensorBlockSparse 17 refused;
    CreateSparseTensorWithValuesAsOrtValue 17 refused;
    UseCooIndices 17 refused;
    UseCsrIndices 17 refused;
    UseBlockSparseIndices 17 refused;
    GetSparseTensorFormat 17 refused;
    GetSparseTensorValuesTypeAndShape 17 refused;
    GetSparseTensorValues 17 refused;
    GetSparseTensorIndicesTypeShape 17 refused;
    GetSparseTensorIndices 17 refused;
    HasValue 17 (values::has_value);
    KernelContext_GetGPUComputeStream 17 refused;
    GetTensorMemoryInfo 17 (values::get_tensor_memory_info);
    GetExecutionProviderApi 17 (providers::get_execution_provider_api);
    SessionOptionsSetCustomCreateThreadFn 17 refused;
    SessionOptionsSetCustomThreadCreationOptions 17 refused;
    SessionOptionsSetCustomJoinThreadFn 17 refused;
    SetGlobalCustomCreateThreadFn 17 refused;
    SetGlobalCustomThreadCreationOptions 17 refused;
    SetGlobalCustomJoinThreadFn 17 refused;
    SynchronizeBoundInputs 17 (binding::synchronize_bound_inputs);
    SynchronizeBoundOutputs 17 (binding::synchronize_bound_outputs);
    SessionOptionsAppendExecutionProvider_CUDA_V2 17 refused;
    CreateCUDAProviderOptions 17 refused;
    UpdateCUDAProviderOptions 17 refused;
    GetCUDAProviderOptionsAsString 17 refused;
    ReleaseCUDAProviderOptions 17 nothing;
    SessionOptionsAppendExecutionProvider_MIGraphX 17 refused;
    AddExternalInitializers 17 (options::add_external_initializers);
    CreateOpAttr 17 (editor::create_op_attr);
    ReleaseOpAttr 17 (editor::release_op_attr);
    CreateOp 17 refused;
    InvokeOp 17 refused;
    ReleaseOp 17 nothing;
    SessionOptionsAppendExecutionProvider 17 (options::session_options_append_execution_provider);
    CopyKernelInfo 17 refused;
    ReleaseKernelInfo 17 nothing;
    GetTrainingApi 17 nothing;
    SessionOptionsAppendExecutionProvider_CANN 17 refused;
    CreateCANNProviderOptions 17 refused;
    UpdateCANNProviderOptions 17 refused;
    GetCANNProviderOptionsAsString 17 refused;
    ReleaseCANNProviderOptions 17 nothing;
    MemoryInfoGetDeviceType 17 (memory::memory_info_get_device_type);
    UpdateEnvWithCustomLogLevel 17 (environment::update_env_with_custom_log_level);
    SetGlobalIntraOpThreadAffinity 17 refused;
    RegisterCustomOpsLibrary_V2 17 (options::register_custom_ops_library_v2);
    RegisterCustomOpsUsingFunction 17 refused;
    KernelInfo_GetInputCount 17 refused;
    KernelInfo_GetOutputCount 17 refused;
    KernelInfo_GetInputName 17 refused;
    KernelInfo_GetOutputName 17 refused;
    KernelInfo_GetInputTypeInfo 17 refused;
    KernelInfo_GetOutputTypeInfo 17 refused;
    KernelInfoGetAttribute_tensor 17 refused;
    HasSessionConfigEntry 17 (options::has_session_config_entry);
    GetSessionConfigEntry 17 (options::get_session_config_entry);
    SessionOptionsAppendExecutionProvider_Dnnl 17 refused;
    CreateDnnlProviderOptions 17 refused;
    UpdateDnnlProviderOptions 17 refused;
    GetDnnlProviderOptionsAsString 17 refused;
    ReleaseDnnlProviderOptions 17 nothing;
    KernelInfo_GetNodeName 17 refused;
    KernelInfo_GetLogger 17 refused;
    KernelContext_GetLogger 17 refused;
    Logger_LogMessage 17 refused;
    Logger_GetLoggingSeverityLevel 17 refused;
    KernelInfoGetConstantInput_tensor 17 refused;
    CastTypeInfoToOptionalTypeInfo 17 (types::cast_type_info_to_optional_type_info);
    GetOptionalContainedTypeInfo 17 (types::get_optional_contained_type_info);
    GetResizedStringTensorElementBuffer 17 (strings::get_resized_string_tensor_element_buffer);
    KernelContext_GetAllocator 17 refused;
    GetBuildInfoString 17 (get_build_info);
    CreateROCMProviderOptions 17 refused;
    UpdateROCMProviderOptions 17 refused;
    GetROCMProviderOptionsAsString 17 refused;
    ReleaseROCMProviderOptions 17 nothing;
    CreateAndRegisterAllocatorV2 17 (arenas::create_and_register_allocator_v2);
    RunAsync 17 (run::run_async);
    UpdateTensorRTProviderOptionsWithValue 17 refused;
    GetTensorRTProviderOptionsByName 17 refused;
    UpdateCUDAProviderOptionsWithValue 17 refused;
    GetCUDAProviderOptionsByName 17 refused;
    KernelContext_GetResource 17 refused;
    SetUserLoggingFunction 17 (options::set_user_logging_function);
    ShapeInferContext_GetInputCount 17 refused;
    ShapeInferContext_GetInputTypeShape 17 refused;
    ShapeInferContext_GetAttribute 17 refused;
    ShapeInferContext_SetOutputTypeShape 17 refused;
    SetSymbolicDimensions 17 (types::set_symbolic_dimensions);
    ReadOpAttr 17 (editor::read_op_attr);
    SetDeterministicCompute 17 (options::set_deterministic_compute);
    KernelContext_ParallelFor 17 refused;
    SessionOptionsAppendExecutionProvider_OpenVINO_V2 17 refused;
    SessionOptionsAppendExecutionProvider_VitisAI 18 refused;
    KernelContext_GetScratchBuffer 18 refused;
    KernelInfoGetAllocator 18 refused;
    AddExternalInitializersFromFilesInMemory 18 (options::add_external_initializers_from_memory);
    CreateLoraAdapter 20 refused;
    CreateLoraAdapterFromArray 20 refused;
    ReleaseLoraAdapter 20 nothing;
    RunOptionsAddActiveLoraAdapter 20 refused;
    SetEpDynamicOptions 20 (session::set_ep_dynamic_options);
    ReleaseValueInfo 22 (editor::release_value_info);
    ReleaseNode 22 (editor::release_node);
    ReleaseGraph 22 (editor::release_graph);
    ReleaseModel 22 (editor::release_model);
    GetValueInfoName 22 (editor::get_value_info_name);
    GetValueInfoTypeInfo 22 (editor::get_value_info_type_info);
    GetModelEditorApi 22 (get_model_editor_api);
    CreateTensorWithDataAndDeleterAsOrtValue 22 (values::create_tensor_with_data_and_deleter_as_ort_value);
    SessionOptionsSetLoadCancellationFlag 22 (options::session_options_set_load_cancellation_flag);
    GetCompileApi 22 (get_compile_api);
    CreateKeyValuePairs 22 (pairs::create_key_value_pairs);
    AddKeyValuePair 22 (pairs::add_key_value_pair);
    GetKeyValue 22 (pairs::get_key_value);
    GetKeyValuePairs 22 (pairs::get_key_value_pairs);
    RemoveKeyValuePair 22 (pairs::remove_key_value_pair);
    ReleaseKeyValuePairs 22 (pairs::release_key_value_pairs);
    RegisterExecutionProviderLibrary 22 refused;
    UnregisterExecutionProviderLibrary 22 refused;
    GetEpDevices 22 (providers::get_ep_devices);
    SessionOptionsAppendExecutionProvider_V2 22 (options::session_options_append_execution_provider_v2);
    SessionOptionsSetEpSelectionPolicy 22 (options::session_options_set_ep_selection_policy);
    SessionOptionsSetEpSelectionPolicyDelegate 22 refused;
    HardwareDevice_Type 22 (providers::hardware_device_type);
    HardwareDevice_VendorId 22 (providers::hardware_device_vendor_id);
    HardwareDevice_Vendor 22 (providers::hardware_device_vendor);
    HardwareDevice_DeviceId 22 (providers::hardware_device_device_id);
    HardwareDevice_Metadata 22 (providers::hardware_device_metadata);
    EpDevice_EpName 22 (providers::ep_device_ep_name);
    EpDevice_EpVendor 22 (providers::ep_device_ep_vendor);
    EpDevice_EpMetadata 22 (providers::ep_device_ep_metadata);
    EpDevice_EpOptions 22 (providers::ep_device_ep_options);
    EpDevice_Device 22 (providers::ep_device_device);
    GetEpApi 22 nothing;
    GetTensorSizeInBytes 23 (values::get_tensor_size_in_bytes);
    AllocatorGetStats 23 (memory::allocator_get_stats);
    CreateMemoryInfo_V2 23 (memory::create_memory_info_v2);
    MemoryInfoGetDeviceMemType 23 (memory::memory_info_get_device_mem_type);
    MemoryInfoGetVendorId 23 (memory::memory_info_get_vendor_id);
    ValueInfo_GetValueProducer 23 refused;
    ValueInfo_GetValueNumConsumers 23 refused;
    ValueInfo_GetValueConsumers 23 refused;
    ValueInfo_GetInitializerValue 23 refused;
    ValueInfo_GetExternalInitializerInfo 23 refused;
    ValueInfo_IsRequiredGraphInput 23 refused;
    ValueInfo_IsOptionalGraphInput 23 refused;
    ValueInfo_IsGraphOutput 23 refused;
    ValueInfo_IsConstantInitializer 23 refused;
    ValueInfo_IsFromOuterScope 23 refused;
    Graph_GetName 23 refused;
    Graph_GetModelPath 23 refused;
    Graph_GetOnnxIRVersion 23 refused;
    Graph_GetNumOperatorSets 23 refused;
    Graph_GetOperatorSets 23 refused;
    Graph_GetNumInputs 23 refused;
    Graph_GetInputs 23 refused;
    Graph_GetNumOutputs 23 refused;
    Graph_GetOutputs 23 refused;
    Graph_GetNumInitializers 23 refused;
    Graph_GetInitializers 23 refused;
    Graph_GetNumNodes 23 refused;
    Graph_GetNodes 23 refused;
    Graph_GetParentNode 23 refused;
    Graph_GetGraphView 23 refused;
    Node_GetId 23 refused;
    Node_GetName 23 refused;
    Node_GetOperatorType 23 refused;
    Node_GetDomain 23 refused;
    Node_GetSinceVersion 23 refused;
    Node_GetNumInputs 23 refused;
    Node_GetInputs 23 refused;
    Node_GetNumOutputs 23 refused;
    Node_GetOutputs 23 refused;
    Node_GetNumImplicitInputs 23 refused;
    Node_GetImplicitInputs 23 refused;
    Node_GetNumAttributes 23 refused;
    Node_GetAttributes 23 refused;
    Node_GetAttributeByName 23 refused;
    OpAttr_GetTensorAttributeAsOrtValue 23 refused;
    OpAttr_GetType 23 (editor::op_attr_get_type);
    OpAttr_GetName 23 (editor::op_attr_get_name);
    Node_GetNumSubgraphs 23 refused;
    Node_GetSubgraphs 23 refused;
    Node_GetGraph 23 refused;
    Node_GetEpName 23 refused;
    ReleaseExternalInitializerInfo 23 nothing;
    ExternalInitializerInfo_GetFilePath 23 nothing;
    ExternalInitializerInfo_GetFileOffset 23 nothing;
    ExternalInitializerInfo_GetByteSize 23 nothing;
    GetRunConfigEntry 23 (options::get_run_config_entry);
    EpDevice_MemoryInfo 23 (providers::ep_device_memory_info);
    CreateSharedAllocator 23 (arenas::create_shared_allocator);
    GetSharedAllocator 23 (arenas::get_shared_allocator);
    ReleaseSharedAllocator 23 (arenas::release_shared_allocator);
    GetTensorData 23 (values::get_tensor_data);
    GetSessionOptionsConfigEntries 23 (options::get_session_options_config_entries);
    SessionGetMemoryInfoForInputs 23 (providers::session_get_memory_info_for_inputs);
    SessionGetMemoryInfoForOutputs 23 (providers::session_get_memory_info_for_outputs);
    SessionGetEpDeviceForInputs 23 (providers::session_get_ep_device_for_inputs);
    CreateSyncStreamForEpDevice 23 refused;
    SyncStream_GetHandle 23 nothing;
    ReleaseSyncStream 23 nothing;
    CopyTensors 23 (values::copy_tensors);
    Graph_GetModelMetadata 23 refused;
    GetModelCompatibilityForEpDevices 23 refused;
    CreateExternalInitializerInfo 23 refused;
    TensorTypeAndShape_HasShape 24 (types::tensor_type_and_shape_has_shape);
    KernelInfo_GetConfigEntries 24 refused;
    KernelInfo_GetOperatorDomain 24 refused;
    KernelInfo_GetOperatorType 24 refused;
    KernelInfo_GetOperatorSinceVersion 24 refused;
    GetInteropApi 24 nothing;
    SessionGetEpDeviceForOutputs 24 (providers::session_get_ep_device_for_outputs);
    GetNumHardwareDevices 24 (providers::get_num_hardware_devices);
    GetHardwareDevices 24 (providers::get_hardware_devices);
    GetHardwareDeviceEpIncompatibilityDetails 24 refused;
    DeviceEpIncompatibilityDetails_GetReasonsBitmask 24 refused;
    DeviceEpIncompatibilityDetails_GetNotes 24 refused;
    DeviceEpIncompatibilityDetails_GetErrorCode 24 refused;
    ReleaseDeviceEpIncompatibilityDetails 24 nothing;
    GetCompatibilityInfoFromModel 24 refused;
    GetCompatibilityInfoFromModelBytes 24 refused;
    CreateEnvWithOptions 24 (environment::create_env_with_options);
    Session_GetEpGraphAssignmentInfo 24 refused;
    EpAssignedSubgraph_GetEpName 24 refused;
    EpAssignedSubgraph_GetNodes 24 refused;
    EpAssignedNode_GetName 24 refused;
    EpAssignedNode_GetDomain 24 refused;
    EpAssignedNode_GetOperatorType 24 refused;
    RunOptionsSetSyncStream 24 nothing;
    GetTensorElementTypeAndShapeDataReference 24 (values::get_tensor_element_type_and_shape_data_reference);
    RunOptionsEnableProfiling 25 refused;
    RunOptionsDisableProfiling 25 refused;
    KernelInfoGetAttributeArray_string 25 refused;
    SetPerSessionThreadPoolCallbacks 25 refused;
    GetMemPatternEnabled 27 (options::get_mem_pattern_enabled);
    GetSessionExecutionMode 27 (options::get_session_execution_mode);
    SessionReleaseCapturedGraph 27 refused;
    GetExperimentalFunction 28 nothing;
    KernelContext_GetSyncStream 28 refused;
    SessionOptionsSetWeightlessSourceModelBuffer 29 refused;
    KernelContext_GetPreallocatedOutput 30 refused;
    SessionOptionsSetEpContextDataReadFunc 31 refused;
    GetModelPackageApi 31 nothing;
}

/// The table `OrtModelEditorApi`.
static EDITOR: [Address; 20] = [
    Address(editor::create_tensor_type_info as *const ()),
    address!(CreateSparseTensorTypeInfo refused),
    Address(editor::create_map_type_info as *const ()),
    Address(editor::create_sequence_type_info as *const ()),
    Address(editor::create_optional_type_info as *const ()),
    Address(editor::create_value_info as *const ()),
    Address(editor::create_node as *const ()),
    Address(editor::create_graph as *const ()),
    Address(editor::set_graph_inputs as *const ()),
    Address(editor::set_graph_outputs as *const ()),
    Address(editor::add_initializer_to_graph as *const ()),
    Address(editor::add_node_to_graph as *const ()),
    Address(editor::create_model as *const ()),
    Address(editor::add_graph_to_model as *const ()),
    Address(editor::create_session_from_model as *const ()),
    address!(CreateModelEditorSession refused),
    address!(CreateModelEditorSessionFromArray refused),
    Address(session::session_get_opset_for_domain as *const ()),
    address!(ApplyModelToModelEditorSession refused),
    address!(FinalizeModelEditorSession refused),
];

extern "C" fn get_model_editor_api() -> *const Address {
    EDITOR.as_ptr()
}

/// The table `OrtCompileApi`: models are not compiled to files.
static COMPILE: [Address; 17] = [
    address!(ReleaseModelCompilationOptions nothing),
    address!(CreateModelCompilationOptionsFromSessionOptions refused),
    address!(ModelCompilationOptions_SetInputModelPath refused),
    address!(ModelCompilationOptions_SetInputModelFromBuffer refused),
    address!(ModelCompilationOptions_SetOutputModelPath refused),
    address!(ModelCompilationOptions_SetOutputModelExternalInitializersFile refused),
    address!(ModelCompilationOptions_SetOutputModelBuffer refused),
    address!(ModelCompilationOptions_SetEpContextEmbedMode refused),
    address!(CompileModel refused),
    address!(ModelCompilationOptions_SetFlags refused),
    address!(ModelCompilationOptions_SetEpContextBinaryInformation refused),
    address!(ModelCompilationOptions_SetGraphOptimizationLevel refused),
    address!(ModelCompilationOptions_SetOutputModelWriteFunc refused),
    address!(ModelCompilationOptions_SetOutputModelGetInitializerLocationFunc refused),
    address!(ModelCompilationOptions_SetInputModel refused),
    address!(ModelCompilationOptions_SetWeightlessEnabled refused),
    address!(ModelCompilationOptions_SetEpContextDataWriteFunc refused),
];

extern "C" fn get_compile_api() -> *const Address {
    COMPILE.as_ptr()
}

static BUILD_INFO: LazyLock<CString> = LazyLock::new(|| to_c_string(&sardonyx_ort::build_info()));

extern "C" fn get_build_info() -> *const c_char {
    BUILD_INFO.as_ptr()
}
