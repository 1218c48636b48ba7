/* Sardonyx for C and C++: ONNX models opened, checked, converted, simplified and run.
 *
 * A function that can fail returns a null pointer for success, else an error that the caller frees with sardonyx_error_free.
 * An object is freed by the function with its name, once. Functions may be called from any thread; an object is not changed or
 * freed while another thread uses it. Texts are UTF-8 and end with a zero byte.
 *
 * Written from the sources by the test `header` of the crate sardonyx-c.
 */
#ifndef SARDONYX_H
#define SARDONYX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Error of a call. */
typedef struct SardonyxError SardonyxError;
/* Model. */
typedef struct SardonyxModel SardonyxModel;
/* Findings of a check. */
typedef struct SardonyxReport SardonyxReport;
/* Model that is prepared to run. Several threads may use it at the same time. */
typedef struct SardonyxSession SardonyxSession;
/* Tensor. It is never changed, so several threads may read it. */
typedef struct SardonyxTensor SardonyxTensor;
/* Array of another library, as dlpack.h declares it. */
typedef struct DLManagedTensor DLManagedTensor;

/* ---- Errors ---- */
/* A file could not be opened, read or written. */
#define SARDONYX_ERROR_IO 1
/* Bytes are not an ONNX model. */
#define SARDONYX_ERROR_FORMAT 2
/* The model uses operators that sessions cannot compute. */
#define SARDONYX_ERROR_UNSUPPORTED 3
/* The model contradicts itself or the ONNX standard. */
#define SARDONYX_ERROR_INVALID 4
/* A data file is missing or too short. */
#define SARDONYX_ERROR_EXTERNAL_DATA 5
/* An argument is a null pointer or has a value that does not exist. */
#define SARDONYX_ERROR_ARGUMENT 6
/* A model input is missing, unknown, or of another type or shape. */
#define SARDONYX_ERROR_INPUT 7
/* An output does not exist, or is of another type than requested. */
#define SARDONYX_ERROR_OUTPUT 8
/* An operator failed while the model ran. */
#define SARDONYX_ERROR_RUN 9
/* The run was cancelled. */
#define SARDONYX_ERROR_STOPPED 10
/* Another worker of a model on several devices failed. */
#define SARDONYX_ERROR_WORKER 11
/* A bug of the library. */
#define SARDONYX_ERROR_INTERNAL 12

/* Returns the code of an error, one of SARDONYX_ERROR_…; 0 for a null pointer. */
int sardonyx_error_code(const SardonyxError *error);

/* Returns the message of an error, one line or several. */
const char *sardonyx_error_message(const SardonyxError *error);

/* Returns the place of an error in the model or file; null without one. */
const char *sardonyx_error_place(const SardonyxError *error);

/* Returns the advice of an error; null without any. */
const char *sardonyx_error_help(const SardonyxError *error);

/* Frees an error. Ignores a null pointer. */
void sardonyx_error_free(SardonyxError *error);

/* ---- The library, and what it allocates ---- */

/* Returns the version of the library, such as 0.1.0. */
const char *sardonyx_version(void);

/* Frees a text that a function has allocated. Ignores a null pointer. */
void sardonyx_text_free(char *text);

/* Frees bytes that a function has allocated. Ignores a null pointer. */
void sardonyx_bytes_free(uint8_t *bytes, size_t count);

/* ---- Models ---- */

/* Opens a model file: binary, text, JSON or text format of protobuf. Weights in data files are
 * read when they are needed. */
SardonyxError *sardonyx_model_open(const char *path, SardonyxModel **model);

/* Reads a model from the bytes of a file, which are copied. */
SardonyxError *sardonyx_model_from_bytes(const uint8_t *bytes, size_t count, SardonyxModel **model);

/* Parses a model in ONNX text. */
SardonyxError *sardonyx_model_from_text(const char *text, SardonyxModel **model);

/* Saves a model in the format that the extension of the path names. */
SardonyxError *sardonyx_model_save(const SardonyxModel *model, const char *path);

/* Encodes a model. The caller frees the bytes with sardonyx_bytes_free. */
SardonyxError *sardonyx_model_to_bytes(const SardonyxModel *model, uint8_t **bytes, size_t *count);

/* Prints a model as ONNX text. The caller frees it with sardonyx_text_free. */
SardonyxError *sardonyx_model_to_text(const SardonyxModel *model, char **text);

/* Frees a model. Ignores a null pointer. */
void sardonyx_model_free(SardonyxModel *model);

/* Returns the number of inputs; 0 for a null pointer. */
size_t sardonyx_model_input_count(const SardonyxModel *model);

/* Returns the number of outputs; 0 for a null pointer. */
size_t sardonyx_model_output_count(const SardonyxModel *model);

/* Copies the name of an input. The caller frees it with sardonyx_text_free. */
SardonyxError *sardonyx_model_input_name(const SardonyxModel *model, size_t index, char **name);

/* Copies the name of an output. The caller frees it with sardonyx_text_free. */
SardonyxError *sardonyx_model_output_name(const SardonyxModel *model, size_t index, char **name);

/* Returns the number of nodes, those of subgraphs and functions included; 0 for a null pointer. */
size_t sardonyx_model_node_count(const SardonyxModel *model);

/* Returns the version of an operator set that the model imports; 0 for one that it does not. An
 * empty name stands for the standard's. */
int64_t sardonyx_model_opset(const SardonyxModel *model, const char *domain);

/* Copies the metadata of a key; null without it. The caller frees it with sardonyx_text_free. */
SardonyxError *sardonyx_model_metadata(const SardonyxModel *model, const char *key, char **value);

/* Sets the metadata of a key. */
SardonyxError *sardonyx_model_set_metadata(SardonyxModel *model, const char *key, const char *value);

/* Converts a model to a version of an operator set; an empty name stands for the standard's. The
 * model stays, and the result is a new one. */
SardonyxError *sardonyx_model_convert(const SardonyxModel *model, const char *domain, uint32_t version, SardonyxModel **converted);

/* Simplifies a model: computes constants and removes nodes without an effect. The result is a
 * new one, with equal results. */
SardonyxError *sardonyx_model_simplify(const SardonyxModel *model, SardonyxModel **simplified);

/* Infers types and shapes. The result is a new model that declares them. */
SardonyxError *sardonyx_model_infer(const SardonyxModel *model, SardonyxModel **inferred);

/* ---- Checks ---- */
/* The finding does not make the model invalid. */
#define SARDONYX_SEVERITY_NOTE 1
/* The finding is likely a mistake. */
#define SARDONYX_SEVERITY_WARNING 2
/* The finding makes the model invalid. */
#define SARDONYX_SEVERITY_ERROR 3

/* Checks a model against the rules of the standard; with types, types and shapes as well.
 * Findings do not make the call fail. */
SardonyxError *sardonyx_model_check(const SardonyxModel *model, bool types, SardonyxReport **report);

/* Returns the number of findings; 0 for a null pointer. */
size_t sardonyx_report_count(const SardonyxReport *report);

/* Returns the severity of a finding, one of SARDONYX_SEVERITY_…; 0 for an index without one. */
int sardonyx_report_severity(const SardonyxReport *report, size_t index);

/* Returns the code of a finding, which sardonyx explain explains; null for an index without one. */
const char *sardonyx_report_code(const SardonyxReport *report, size_t index);

/* Returns the fact of a finding; null for an index without one. */
const char *sardonyx_report_fact(const SardonyxReport *report, size_t index);

/* Returns the place of a finding in the model; null for an index without one. */
const char *sardonyx_report_place(const SardonyxReport *report, size_t index);

/* Returns the advice of a finding; null for an index without one. */
const char *sardonyx_report_advice(const SardonyxReport *report, size_t index);

/* Frees a report. Ignores a null pointer. */
void sardonyx_report_free(SardonyxReport *report);

/* ---- Tensors ---- */
/* Elements of type float. */
#define SARDONYX_TYPE_FLOAT 1
/* Elements of type uint8. */
#define SARDONYX_TYPE_UINT8 2
/* Elements of type int8. */
#define SARDONYX_TYPE_INT8 3
/* Elements of type uint16. */
#define SARDONYX_TYPE_UINT16 4
/* Elements of type int16. */
#define SARDONYX_TYPE_INT16 5
/* Elements of type int32. */
#define SARDONYX_TYPE_INT32 6
/* Elements of type int64. */
#define SARDONYX_TYPE_INT64 7
/* Elements of type string. */
#define SARDONYX_TYPE_STRING 8
/* Elements of type bool, a byte each. */
#define SARDONYX_TYPE_BOOL 9
/* Elements of type float16. */
#define SARDONYX_TYPE_FLOAT16 10
/* Elements of type double. */
#define SARDONYX_TYPE_DOUBLE 11
/* Elements of type uint32. */
#define SARDONYX_TYPE_UINT32 12
/* Elements of type uint64. */
#define SARDONYX_TYPE_UINT64 13
/* Elements of type bfloat16. */
#define SARDONYX_TYPE_BFLOAT16 16

/* Makes a tensor of a copy of elements in row-major order. The type is the number of the element
 * type in ONNX, such as SARDONYX_TYPE_FLOAT; byte_count is the size of all elements. */
SardonyxError *sardonyx_tensor_new(int element_type, const int64_t *dims, size_t rank, const void *elements, size_t byte_count, SardonyxTensor **tensor);

/* Makes a tensor of copies of strings. Their number is the product of the sizes. */
SardonyxError *sardonyx_tensor_from_strings(const int64_t *dims, size_t rank, const char *const *strings, SardonyxTensor **tensor);

/* Returns the number of the element type in ONNX; 0 for a null pointer. */
int sardonyx_tensor_type(const SardonyxTensor *tensor);

/* Returns the number of dimensions; 0 for a null pointer. */
size_t sardonyx_tensor_rank(const SardonyxTensor *tensor);

/* Returns the sizes, which live as long as the tensor; null for a null pointer. */
const int64_t *sardonyx_tensor_dims(const SardonyxTensor *tensor);

/* Returns the number of elements; 0 for a null pointer. */
size_t sardonyx_tensor_count(const SardonyxTensor *tensor);

/* Returns the elements in row-major order, which live as long as the tensor; null for strings. */
const void *sardonyx_tensor_elements(const SardonyxTensor *tensor);

/* Returns the number of bytes of all elements; 0 for strings. */
size_t sardonyx_tensor_byte_count(const SardonyxTensor *tensor);

/* Copies a string of a tensor of strings. The caller frees it with sardonyx_text_free. */
SardonyxError *sardonyx_tensor_string(const SardonyxTensor *tensor, size_t index, char **text);

/* Frees a tensor. Ignores a null pointer. */
void sardonyx_tensor_free(SardonyxTensor *tensor);

/* Makes a tensor of an array of another library, without a copy where its elements are contiguous.
 * After success the array belongs to the tensor, which frees it; after an error it stays with the
 * caller. */
SardonyxError *sardonyx_tensor_from_dlpack(const DLManagedTensor *array, SardonyxTensor **tensor);

/* Exports a tensor as an array for another library, which shares its memory, must not write to it
 * and frees it with its deleter. */
SardonyxError *sardonyx_tensor_to_dlpack(const SardonyxTensor *tensor, DLManagedTensor **array);

/* ---- Sessions ---- */

/* Prepares a model to run with this number of threads; 0 for one for each processor. The model may
 * be freed afterwards. */
SardonyxError *sardonyx_session_new(const SardonyxModel *model, size_t threads, SardonyxSession **session);

/* Returns the number of inputs; 0 for a null pointer. */
size_t sardonyx_session_input_count(const SardonyxSession *session);

/* Returns the number of outputs; 0 for a null pointer. */
size_t sardonyx_session_output_count(const SardonyxSession *session);

/* Returns the name of an input, which lives as long as the session; null for an index without one. */
const char *sardonyx_session_input_name(const SardonyxSession *session, size_t index);

/* Returns the name of an output, which lives as long as the session; null for an index without
 * one. */
const char *sardonyx_session_output_name(const SardonyxSession *session, size_t index);

/* Returns the element type of an input, one of SARDONYX_TYPE_…; 0 for an input that is not a
 * tensor or has an open type. */
int sardonyx_session_input_type(const SardonyxSession *session, size_t index);

/* Runs a session on inputs with these names. outputs has room for output_count tensors, as
 * many as the model has outputs, which are in the order of the model; the caller frees each. */
SardonyxError *sardonyx_session_run(const SardonyxSession *session, const char *const *names, const SardonyxTensor *const *inputs, size_t input_count, SardonyxTensor **outputs, size_t output_count);

/* Frees a session. Ignores a null pointer. */
void sardonyx_session_free(SardonyxSession *session);

#ifdef __cplusplus
}
#endif

#endif
