/* Trains models that Python exported, from C and from languages that call C: see docs/simulations.md.
 *
 * Every function that can fail returns a status, and etude_last_error() says why it failed. A call that is
 * refused changes nothing. A failure during a step, such as of the model, its loss, a callback, a file or
 * another process, ends the training. No C++ exception leaves the library, and it installs no signal handler.
 * It writes nothing to standard output, unless the option "callback" adds a callback that prints. Warnings go
 * to standard error, or to etude_set_message_handler().
 *
 * Threads: an object may be used by one thread at a time. A call while another thread is in a call with the
 * same trainer returns ETUDE_BUSY and changes nothing; only etude_trainer_pause, _resume and _cancel may be
 * called from any thread at any time. Different trainers may be used by different threads at the same time;
 * they share a generator of random numbers, so dropout then differs from run to run. An object may not be
 * destroyed while another thread uses it.
 *
 * Strings are UTF-8. A string or a pointer that a function returns belongs to the object, and is valid until
 * the next call with that object unless the function says otherwise.
 *
 * Programs that were compiled with this header run with every later library of the same name,
 * libetude_c.so.1: functions, values and names are only added, and etude_tensor doesn't change.
 */
#ifndef ETUDE_H
#define ETUDE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t etude_status;

enum {
  ETUDE_OK = 0,
  ETUDE_INVALID_ARGUMENT = 1, /* a null pointer, or an unknown or invalid name, option or value */
  ETUDE_INVALID_DATA = 2,  /* a tensor with the wrong name, shape or type, or one that doesn't fit the loss */
  ETUDE_INVALID_FILE = 3,  /* a model or checkpoint can't be read, or a file can't be written */
  ETUDE_WRONG_CALL = 4,    /* not allowed now: a step before begin, or a step in a callback */
  ETUDE_BUSY = 5,          /* another thread is in a call with this trainer */
  ETUDE_OUT_OF_MEMORY = 6, /* of the machine or of the device */
  ETUDE_LOST_PROCESS = 7,  /* another process of the training has failed, or can't be reached */
  ETUDE_FAILED = 8         /* anything else: the model or a callback has failed */
};

/* Why the last call of this thread that failed did so, one line for each problem; "" if none has failed.
 * Valid until the next call of this thread that fails. */
const char* etude_last_error(void);

/* The library's version, 100 for 0.1.0. */
int32_t etude_version(void);

enum { ETUDE_INFO = 0, ETUDE_WARNING = 1, ETUDE_ERROR = 2 };
/* Receives messages instead of standard error; null restores that. It may be called from any thread, and may
 * still be running in another one when it is replaced. */
typedef void (*etude_message_handler)(int32_t level, const char* text, void* user);
etude_status etude_set_message_handler(etude_message_handler handler, void* user);

/* ---- tensors ---- */

enum {
  ETUDE_FLOAT32 = 0,
  ETUDE_FLOAT64 = 1,
  ETUDE_FLOAT16 = 2,
  ETUDE_BFLOAT16 = 3,
  ETUDE_INT8 = 4,
  ETUDE_INT16 = 5,
  ETUDE_INT32 = 6,
  ETUDE_INT64 = 7,
  ETUDE_UINT8 = 8,
  ETUDE_BOOL = 9
};
enum { ETUDE_CPU = 0, ETUDE_CUDA = 1 };

/* Memory as a tensor. If all but data, shape and rank is zero, an unnamed, contiguous float32 tensor on the
 * CPU.
 *
 * The library reads the program's memory where it is, with any strides, and makes a copy only if the memory
 * - has another floating-point type than the model's, or a narrower integer type: converted to the model's.
 *   Other types are refused, except for labels of a loss other than "model".
 * - is on another device than the model.
 * Work on a GPU runs on its default stream. */
typedef struct etude_tensor {
  const char* name; /* an input or label of the model; if null, the tensor is identified by its position */
  void* data;
  const int64_t* shape;   /* rank sizes; the first is the number of examples of the batch or dataset */
  const int64_t* strides; /* in elements; null if contiguous in C's order: the last index varies fastest */
  int32_t rank;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
} etude_tensor;

/* ---- options ---- */

typedef struct etude_options etude_options;
typedef struct etude_dataset etude_dataset;
typedef struct etude_trainer etude_trainer;
typedef struct etude_event etude_event;

/* The options of a trainer, by default those of `etude train`. They may be destroyed once trainers are made
 * from them. */
etude_status etude_options_create(etude_options** options);
void etude_options_destroy(etude_options* options);
/* An argument of a training in docs/arguments.md, written as on the command line: "learning_rate", "1e-3". Or
 * one of `etude train`: weights, loss, compute_metrics, callback, run_compiled_code. With the default loss,
 * "model", the model computes the loss itself from its labels; with any other, such as "mse" or
 * "cross_entropy", it is computed from the model's first output and a tensor named labels. */
etude_status etude_options_set(etude_options* options, const char* name, const char* value);
/* Several, as a JSON object: {"learning_rate": 1e-3, "loss": "mse"}. */
etude_status etude_options_set_json(etude_options* options, const char* json);
/* The dataset of etude_trainer_train. It may be destroyed once it is set. */
etude_status etude_options_set_train_dataset(etude_options* options, const etude_dataset* dataset);
/* A dataset of evaluations. With several, each has a name, which is part of the names of its metrics
 * (eval_NAME_loss); a single one may have none (null). */
etude_status etude_options_add_eval_dataset(etude_options* options, const char* name,
                                            const etude_dataset* dataset);
/* Memory of the program, with a name, that checkpoints keep, such as the field of a simulation. Beginning
 * from a checkpoint restores it. The memory must outlive the trainer. */
etude_status etude_options_add_state(etude_options* options, const etude_tensor* state);
/* Steps the parameters instead of an optimizer of Etude, through etude_trainer_parameter and
 * etude_trainer_gradient: gradients are complete, averaged over processes and clipped. Returns 0, or anything
 * else to end the training. Pass what it keeps from step to step to etude_options_add_state. It may call the
 * functions that callbacks may call. */
typedef int32_t (*etude_optimizer)(etude_trainer* trainer, double learning_rate, void* user);
etude_status etude_options_set_optimizer(etude_options* options, etude_optimizer step, void* user);

/* Examples: the first dimension of each tensor. The tensors' memory must outlive every trainer that uses the
 * dataset. A trainer with this dataset among its options converts tensors of another type once, when it is
 * created, and doesn't see what the program writes to them later. */
etude_status etude_dataset_create(const etude_tensor* tensors, int32_t count, etude_dataset** dataset);
void etude_dataset_destroy(etude_dataset* dataset);
/* With several processes: 1 if each process's dataset is its own part of the examples. With 0,
 * the default, all have the same examples, and the trainer divides them. */
etude_status etude_dataset_set_divided(etude_dataset* dataset, int32_t is_divided);

/* ---- training ---- */

/* A trainer of the model in a .pt2 file. options may be null. With several processes, started by mpirun, srun
 * or torchrun, all must create it, and make the same calls. */
etude_status etude_trainer_create(const char* model, const etude_options* options, etude_trainer** trainer);
/* Ends a training under way, without an evaluation or a checkpoint. Does nothing in a callback of the
 * trainer. */
void etude_trainer_destroy(etude_trainer* trainer);

/* Trains on the train dataset to the end. checkpoint: null to begin anew, "newest" for the newest checkpoint
 * in output_dir if there is one, or the folder of a checkpoint. */
etude_status etude_trainer_train(etude_trainer* trainer, const char* checkpoint);

/* A training in the program's own loop: begin, steps, finish. */
etude_status etude_trainer_begin(etude_trainer* trainer, const char* checkpoint);
/* Trains on a batch: inputs and labels. Their memory isn't used after the call. An update is made in every
 * gradient_accumulation_steps-th call, so with more than one, batches are copied. *should_stop, which may be
 * null, becomes 1 if only finish is left to call. */
etude_status etude_trainer_step(etude_trainer* trainer, const etude_tensor* tensors, int32_t count,
                                int32_t* should_stop);
/* The two halves of a step, for a program that reads or changes the gradients in between: those of this
 * process, divided by the number of processes, before they are added up over processes and clipped. Several
 * calls of backward before an update add up gradients. A training uses these or step, not both.
 * docs/inside-a-program.md has the arguments and callbacks that need step. */
etude_status etude_trainer_backward(etude_trainer* trainer, const etude_tensor* tensors, int32_t count);
etude_status etude_trainer_update(etude_trainer* trainer, int32_t* should_stop);
/* An update with the remaining batches or gradients, if there are any, the last evaluation and checkpoint,
 * and the end of the training. */
etude_status etude_trainer_finish(etude_trainer* trainer);

/* Evaluates on a dataset, or on those of the options if it is null. etude_trainer_number reads the metrics.
 */
etude_status etude_trainer_evaluate(etude_trainer* trainer, const etude_dataset* dataset);
/* Runs the model in evaluation mode, without gradients, and copies its outputs into the program's memory,
 * whose shapes must be theirs; types are converted. outputs are found by name or position, as inputs are. No
 * event is raised, and other processes take no part. */
etude_status etude_trainer_predict(etude_trainer* trainer, const etude_tensor* inputs, int32_t input_count,
                                   const etude_tensor* outputs, int32_t output_count);
/* An output of the last etude_trainer_predict, which may have been called without outputs, in the trainer's
 * memory. Valid until the next predict. */
etude_status etude_trainer_output(etude_trainer* trainer, int32_t index, etude_tensor* output);

/* Writes the weights to a folder, as model.safetensors with Python's names. */
etude_status etude_trainer_save_model(etude_trainer* trainer, const char* folder);
/* Writes a checkpoint of the training under way to output_dir, and waits until it is there. */
etude_status etude_trainer_save_checkpoint(etude_trainer* trainer);

/* Any thread may call these: see docs/inside-a-program.md. cancel returns ETUDE_WRONG_CALL if no training is
 * under way; reason may be null. */
etude_status etude_trainer_pause(etude_trainer* trainer);
etude_status etude_trainer_resume(etude_trainer* trainer);
etude_status etude_trainer_cancel(etude_trainer* trainer, const char* reason);

/* ---- what a trainer knows ---- */

/* A number by its name: loss (of the last update; with several processes, this process's share of it),
 * learning_rate, rank, world_size, global_step, max_steps, epoch and the other numbers of the trainer's
 * state, or the newest value of any logged number or metric: grad_norm, eval_loss, train_runtime. Reading the
 * loss waits for the device. */
etude_status etude_trainer_number(etude_trainer* trainer, const char* name, double* value);
/* The state as JSON, as in trainer_state.json, with the log history. */
etude_status etude_trainer_state(etude_trainer* trainer, const char** json);

/* Parameters, by index in the model's order. Names are valid as long as the trainer. */
etude_status etude_trainer_parameter_count(etude_trainer* trainer, int64_t* count);
etude_status etude_trainer_parameter_name(etude_trainer* trainer, int64_t index, const char** name);
/* A parameter's memory, which the program may read and write between calls, in its optimizer and in
 * callbacks. Valid until the next begin, train or destroy. */
etude_status etude_trainer_parameter(etude_trainer* trainer, const char* name, etude_tensor* parameter);
/* A parameter's gradient: between backward and update, in an etude_optimizer, and in callbacks of events from
 * BackwardEnd to OptimizerStep. With fp16, it is multiplied by the scale of the loss before
 * GradientsComplete. data is null if it has none. */
etude_status etude_trainer_gradient(etude_trainer* trainer, const char* name, etude_tensor* gradient);

/* ---- events ---- */

/* Called when an event is raised, and must return, not leave by longjmp; event is valid until then. Returns
 * 0, or anything else to end the training with ETUDE_FAILED. It may call the functions of this section and of
 * the one above, etude_trainer_save_model, etude_trainer_output, and those that any thread may call; others
 * return ETUDE_WRONG_CALL. */
typedef int32_t (*etude_callback)(const etude_event* event, void* user);
/* event: a name of docs/events.md, such as StepEnd, or in the form of Hugging Face's, such as on_step_end. An
 * event for which no callback was added costs nothing. */
etude_status etude_trainer_on(etude_trainer* trainer, const char* event, etude_callback callback, void* user);
/* The event's name, as in docs/events.md. */
const char* etude_event_name(const etude_event* event);
etude_trainer* etude_event_trainer(const etude_event* event);
/* A number of the event, such as eval_loss of Evaluate or Log; otherwise as etude_trainer_number. */
etude_status etude_event_number(const etude_event* event, const char* name, double* value);
/* A text of the event: checkpoint of Save, reason of Stop, error of TrainError, metric_key_prefix of
 * EvaluateBegin. */
etude_status etude_event_text(const etude_event* event, const char* name, const char** text);

enum { ETUDE_STOP = 0, ETUDE_STOP_EPOCH = 1, ETUDE_SAVE = 2, ETUDE_EVALUATE = 3, ETUDE_LOG = 4 };
/* Asks the trainer for something at its next opportunity; from a callback, or between calls. */
etude_status etude_trainer_request(etude_trainer* trainer, int32_t request);

#ifdef __cplusplus
}
#endif

#endif
