!> Trains models that Python exported, in Fortran programs: etude.h for Fortran. See docs/simulations.md.
!>
!> The optional last argument `status` of each procedure becomes etude_ok or another etude_ code, and etude_error() then has the
!> text. If it is absent, an error is printed to error_unit and ends the program with error stop. For threads, see etude.h; errors
!> that this module finds itself, such as a copied trainer, have one text for all threads.
module etude
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use etude_c
  use etude_memory
  implicit none
  private
  public :: etude_arrays, etude_dataset, etude_error, etude_event, etude_options, etude_point, etude_set_message_handler, &
            etude_trainer, etude_version, etude_view
  public :: etude_callback, etude_message_handler, etude_optimizer
  public :: etude_ok, etude_invalid_argument, etude_invalid_data, etude_invalid_file, etude_wrong_call, etude_busy, &
            etude_out_of_memory, etude_lost_process, etude_failed
  public :: etude_level_info, etude_level_warning, etude_level_error
  public :: etude_float32, etude_float64, etude_float16, etude_bfloat16, etude_int8, etude_int16, etude_int32, etude_int64, &
            etude_uint8, etude_bool, etude_cpu, etude_cuda
  public :: etude_stop, etude_stop_epoch, etude_save, etude_evaluate, etude_log

  !> Examples, along the last dimension of each array. The arrays must outlive every trainer that uses the dataset.
  type :: etude_dataset
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure :: create => dataset_create
    !> With several processes: whether each process's dataset is its own part of the data. By default, all have the same examples,
    !> and the trainer divides them.
    procedure :: set_divided
    procedure :: destroy => dataset_destroy
    procedure, private :: copy_dataset
    generic :: assignment(=) => copy_dataset
    final :: dataset_final
  end type

  !> The options of a trainer, by default those of `etude train`.
  type :: etude_options
    private
    type(c_ptr) :: c = c_null_ptr
    procedure(etude_optimizer), pointer, nopass :: optimizer => null()
    class(*), pointer :: optimizer_user => null()
  contains
    !> Sets an argument of `etude train`: call options%set("learning_rate", 1e-3).
    generic :: set => set_text, set_int32, set_int64, set_real32, set_real64, set_logical
    !> Sets several, from a JSON object.
    procedure :: set_json
    !> Sets the dataset of `train`, which may be destroyed afterwards.
    procedure :: set_train_dataset
    !> Adds a dataset of evaluations; its name, if it has one, becomes part of the metrics' names.
    procedure :: add_eval_dataset
    !> Adds arrays that checkpoints keep, such as the fields of a simulation; `begin` and `train` restore them. They must outlive
    !> the trainer.
    procedure :: add_state
    !> Sets the program's own optimizer. `user`, which is passed to it, needs the target attribute and must outlive the trainer.
    procedure :: set_optimizer
    procedure :: destroy => options_destroy
    procedure, private :: set_text, set_int32, set_int64, set_real32, set_real64, set_logical, copy_options
    generic :: assignment(=) => copy_options
    final :: options_final
  end type

  !> Trains a model. It can't be copied, only passed as an argument.
  type :: etude_trainer
    private
    type(c_ptr) :: c = c_null_ptr
    logical :: is_borrowed = .false. !< it is another variable's trainer, for a callback
    type(registration), pointer :: registrations => null() !< the first; of a borrowed trainer, the one that is running
  contains
    !> Reads the model from a .pt2 file. The options may be destroyed afterwards.
    procedure :: create => trainer_create
    !> Ends a training under way, without an evaluation or a checkpoint. Leaving a trainer's scope does so, too, except at the
    !> end of the main program. Does nothing in a callback.
    procedure :: destroy => trainer_destroy
    !> Trains on the train dataset to the end. `checkpoint` is "newest", the newest one in output_dir if there is one, or a
    !> checkpoint's folder. If it is absent, the training begins anew.
    procedure :: train
    !> Begins a training that consists of calls of `step`, or of `backward` and `update`.
    procedure :: begin
    !> Trains on a batch of inputs and labels. Once should_stop is true, only `finish` is left to call.
    procedure :: step
    !> Computes the gradients of a batch.
    procedure :: backward
    !> Makes the optimizer's step with these gradients.
    procedure :: update
    !> Ends a training, with the last evaluation and checkpoint.
    procedure :: finish
    !> Evaluates on a dataset, or on those of the options. `number` returns the metrics.
    procedure :: evaluate
    !> Runs the model in evaluation mode, and copies its outputs into arrays of the same shapes.
    procedure :: predict
    !> Output 1, 2, ... of the last `predict`, which may be called without arrays for outputs.
    procedure :: output
    !> Writes the weights to a folder, as model.safetensors.
    procedure :: save_model
    procedure :: save_checkpoint
    !> Any thread may call these three.
    procedure :: pause
    procedure :: resume
    procedure :: cancel
    !> A number by its name: loss, learning_rate, global_step, rank, eval_loss, ...
    procedure :: number => trainer_number
    !> The trainer's state as JSON, with the log history.
    procedure :: state
    procedure :: parameter_count
    !> The name of parameter 1, 2, ...
    procedure :: parameter_name
    !> A parameter by its name. Its memory is valid until the next begin, train or destroy.
    procedure :: parameter => trainer_parameter
    !> Its gradient, between `backward` and `update`, and in optimizers.
    procedure :: gradient
    !> Calls a procedure at each event of that name, such as StepEnd or on_step_end. `user`, which is passed to it, needs the
    !> target attribute and must outlive the trainer.
    procedure :: on
    !> Requests etude_stop, etude_stop_epoch, etude_save, etude_evaluate or etude_log at the next opportunity.
    procedure :: request
    procedure, private :: copy_trainer
    generic :: assignment(=) => copy_trainer
    final :: trainer_final
  end type

  !> An event, valid while its callback runs.
  type :: etude_event
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure :: name => event_name
    !> A number of the event, such as eval_loss in Evaluate, or else of the trainer.
    procedure :: number => event_number
    !> The folder of a Save, the reason of a Stop, the error of a TrainError.
    procedure :: text => event_text
  end type

  ! Pass module procedures: an internal procedure is only valid while its host runs, and gfortran needs an executable stack for it.
  abstract interface
    !> Handles an event. `status` is etude_ok; setting it to another value ends the training with etude_failed.
    !> `trainer` is valid during the call.
    subroutine etude_callback(event, trainer, user, status)
      import
      type(etude_event), intent(in) :: event
      type(etude_trainer), intent(inout) :: trainer
      class(*), intent(inout), optional :: user
      integer, intent(inout) :: status
    end subroutine

    !> Changes the parameters. The gradients are complete, averaged over processes and clipped. `status` is as in etude_callback.
    subroutine etude_optimizer(trainer, learning_rate, user, status)
      import
      type(etude_trainer), intent(inout) :: trainer
      real(real64), intent(in) :: learning_rate
      class(*), intent(inout), optional :: user
      integer, intent(inout) :: status
    end subroutine

    !> Receives a message. It may be called from any thread.
    subroutine etude_message_handler(level, text)
      import
      integer, intent(in) :: level
      character(*), intent(in) :: text
    end subroutine
  end interface

  !> A procedure that a trainer calls, and the data that it passes.
  type :: registration
    procedure(etude_callback), pointer, nopass :: callback => null()
    procedure(etude_optimizer), pointer, nopass :: optimizer => null()
    class(*), pointer :: user => null()
    logical :: is_running = .false.
    type(registration), pointer :: next => null()
  end type

  procedure(etude_message_handler), pointer, save :: message_handler => null()

contains

  !> Sends messages to a procedure instead of standard error; without one, to standard error again.
  subroutine etude_set_message_handler(handler, status)
    procedure(etude_message_handler), optional :: handler
    integer, intent(out), optional :: status
    if (present(handler)) then
      message_handler => handler
      call report(c_set_message_handler(c_funloc(handle_message), c_null_ptr), status)
    else
      call report(c_set_message_handler(c_null_funptr, c_null_ptr), status)
    end if
  end subroutine

  subroutine handle_message(level, text, user) bind(c)
    integer(c_int32_t), value :: level
    type(c_ptr), value :: text, user
    associate (unused => user)
    end associate
    call message_handler(int(level), fortran_string(text))
  end subroutine

  ! ---- datasets ----

  subroutine dataset_create(self, arrays, status)
    class(etude_dataset), intent(inout) :: self
    class(etude_arrays), intent(in), target :: arrays
    integer, intent(out), optional :: status
    type(c_tensor) :: tensors(count_of(arrays))
    call self%destroy()
    call get_tensors(arrays, tensors)
    call report(c_dataset_create(tensors, size(tensors, kind=c_int32_t), self%c), status)
  end subroutine

  subroutine set_divided(self, is_divided, status)
    class(etude_dataset), intent(inout) :: self
    logical, intent(in) :: is_divided
    integer, intent(out), optional :: status
    call report(c_dataset_set_divided(self%c, merge(1_c_int32_t, 0_c_int32_t, is_divided)), status)
  end subroutine

  subroutine dataset_destroy(self)
    class(etude_dataset), intent(inout) :: self
    call c_dataset_destroy(self%c)
    self%c = c_null_ptr
  end subroutine

  subroutine dataset_final(self)
    type(etude_dataset), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine copy_dataset(to, from)
    class(etude_dataset), intent(inout) :: to
    class(etude_dataset), intent(in) :: from
    if (c_associated(from%c) .or. c_associated(to%c)) call refuse_copy("etude_dataset")
  end subroutine

  subroutine refuse_copy(type)
    character(*), intent(in) :: type
    call fail(etude_invalid_argument, "a variable of type(" // type // ") can't be copied: pass it as an argument")
  end subroutine

  ! ---- options ----

  logical function exists(self, status)
    class(etude_options), intent(inout) :: self
    integer, intent(out), optional :: status
    if (.not. c_associated(self%c)) call report(c_options_create(self%c), status)
    exists = c_associated(self%c)
  end function

  subroutine options_destroy(self)
    class(etude_options), intent(inout) :: self
    call c_options_destroy(self%c)
    self%c = c_null_ptr
    self%optimizer => null()
    self%optimizer_user => null()
  end subroutine

  subroutine options_final(self)
    type(etude_options), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine copy_options(to, from)
    class(etude_options), intent(inout) :: to
    class(etude_options), intent(in) :: from
    if (c_associated(from%c) .or. c_associated(to%c)) call refuse_copy("etude_options")
  end subroutine

  subroutine set_text(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name, value
    integer, intent(out), optional :: status
    if (exists(self, status)) call report(c_options_set(self%c, c_string(name), c_string(value)), status)
  end subroutine

  subroutine set_int32(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), intent(in) :: value
    integer, intent(out), optional :: status
    call self%set(name, int(value, int64), status)
  end subroutine

  subroutine set_int64(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), intent(in) :: value
    integer, intent(out), optional :: status
    character(20) :: text
    write (text, "(i0)") value
    call self%set(name, trim(text), status)
  end subroutine

  subroutine set_real32(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), intent(in) :: value
    integer, intent(out), optional :: status
    character(32) :: text
    ! Seven digits give the number that was written: 1e-3, not 1.00000005e-3.
    write (text, "(es32.6e3)") value
    call self%set(name, trim(adjustl(text)), status)
  end subroutine

  subroutine set_real64(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), intent(in) :: value
    integer, intent(out), optional :: status
    character(32) :: text
    write (text, "(es32.16e3)") value
    call self%set(name, trim(adjustl(text)), status)
  end subroutine

  subroutine set_logical(self, name, value, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: name
    logical, intent(in) :: value
    integer, intent(out), optional :: status
    call self%set(name, trim(merge("true ", "false", value)), status)
  end subroutine

  subroutine set_json(self, json, status)
    class(etude_options), intent(inout) :: self
    character(*), intent(in) :: json
    integer, intent(out), optional :: status
    if (exists(self, status)) call report(c_options_set_json(self%c, c_string(json)), status)
  end subroutine

  subroutine set_train_dataset(self, dataset, status)
    class(etude_options), intent(inout) :: self
    class(etude_dataset), intent(in) :: dataset
    integer, intent(out), optional :: status
    if (exists(self, status)) call report(c_options_set_train_dataset(self%c, dataset%c), status)
  end subroutine

  subroutine add_eval_dataset(self, dataset, name, status)
    class(etude_options), intent(inout) :: self
    class(etude_dataset), intent(in) :: dataset
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: status
    character(:), allocatable :: text
    if (present(name)) text = c_string(name)
    if (exists(self, status)) call report(c_options_add_eval_dataset(self%c, text, dataset%c), status)
  end subroutine

  subroutine add_state(self, arrays, status)
    class(etude_options), intent(inout) :: self
    class(etude_arrays), intent(in), target :: arrays
    integer, intent(out), optional :: status
    type(c_tensor) :: tensors(count_of(arrays))
    integer(c_int32_t) :: code
    integer :: i
    if (.not. exists(self, status)) return
    call get_tensors(arrays, tensors)
    do i = 1, size(tensors)
      code = c_options_add_state(self%c, tensors(i))
      call report(code, status)
      if (code /= etude_ok) return
    end do
  end subroutine

  subroutine set_optimizer(self, optimizer, user, status)
    class(etude_options), intent(inout) :: self
    procedure(etude_optimizer) :: optimizer
    class(*), intent(inout), target, optional :: user
    integer, intent(out), optional :: status
    if (.not. exists(self, status)) return
    self%optimizer => optimizer
    self%optimizer_user => null()
    if (present(user)) self%optimizer_user => user
    if (present(status)) status = etude_ok
  end subroutine

  ! ---- training ----
  ! Procedures are recursive if they may call procedures of the program.

  subroutine trainer_create(self, model, options, status)
    class(etude_trainer), intent(inout) :: self
    character(*), intent(in) :: model
    class(etude_options), intent(inout), optional :: options
    integer, intent(out), optional :: status
    type(c_ptr) :: c_options
    type(registration), pointer :: new
    integer(c_int32_t) :: code
    call self%destroy()
    if (c_associated(self%c)) then
      call fail(etude_wrong_call, "create was called in a callback of the same trainer", status)
      return
    end if
    c_options = c_null_ptr
    if (present(options)) c_options = options%c
    if (present(options)) then
      if (associated(options%optimizer)) then
        new => register(self, options%optimizer_user)
        new%optimizer => options%optimizer
        code = c_options_set_optimizer(c_options, c_funloc(run_optimizer), c_loc(new))
        if (code /= etude_ok) then
          call report(code, status)
          return
        end if
      end if
    end if
    call report(c_trainer_create(c_string(model), c_options, self%c), status)
  end subroutine

  recursive subroutine trainer_destroy(self)
    class(etude_trainer), intent(inout) :: self
    type(registration), pointer :: next
    if (self%is_borrowed .or. is_running(self)) return
    call c_trainer_destroy(self%c)
    self%c = c_null_ptr
    do while (associated(self%registrations))
      next => self%registrations%next
      deallocate (self%registrations)
      self%registrations => next
    end do
  end subroutine

  recursive subroutine trainer_final(self)
    type(etude_trainer), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine copy_trainer(to, from)
    class(etude_trainer), intent(inout) :: to
    class(etude_trainer), intent(in) :: from
    if (c_associated(from%c) .or. c_associated(to%c)) call refuse_copy("etude_trainer")
  end subroutine

  recursive subroutine train(self, checkpoint, status)
    class(etude_trainer), intent(inout) :: self
    character(*), intent(in), optional :: checkpoint
    integer, intent(out), optional :: status
    character(:), allocatable :: text
    if (present(checkpoint)) text = c_string(checkpoint)
    call report(c_trainer_train(self%c, text), status)
  end subroutine

  recursive subroutine begin(self, checkpoint, status)
    class(etude_trainer), intent(inout) :: self
    character(*), intent(in), optional :: checkpoint
    integer, intent(out), optional :: status
    character(:), allocatable :: text
    if (present(checkpoint)) text = c_string(checkpoint)
    call report(c_trainer_begin(self%c, text), status)
  end subroutine

  recursive subroutine step(self, batch, should_stop, status)
    class(etude_trainer), intent(inout) :: self
    class(etude_arrays), intent(in), target :: batch
    logical, intent(out), optional :: should_stop
    integer, intent(out), optional :: status
    type(c_tensor) :: tensors(count_of(batch))
    integer(c_int32_t) :: stops, code
    stops = 0
    call get_tensors(batch, tensors)
    code = c_trainer_step(self%c, tensors, size(tensors, kind=c_int32_t), stops)
    if (present(should_stop)) should_stop = stops /= 0
    call report(code, status)
  end subroutine

  recursive subroutine backward(self, batch, status)
    class(etude_trainer), intent(inout) :: self
    class(etude_arrays), intent(in), target :: batch
    integer, intent(out), optional :: status
    type(c_tensor) :: tensors(count_of(batch))
    call get_tensors(batch, tensors)
    call report(c_trainer_backward(self%c, tensors, size(tensors, kind=c_int32_t)), status)
  end subroutine

  recursive subroutine update(self, should_stop, status)
    class(etude_trainer), intent(inout) :: self
    logical, intent(out), optional :: should_stop
    integer, intent(out), optional :: status
    integer(c_int32_t) :: stops, code
    stops = 0
    code = c_trainer_update(self%c, stops)
    if (present(should_stop)) should_stop = stops /= 0
    call report(code, status)
  end subroutine

  recursive subroutine finish(self, status)
    class(etude_trainer), intent(inout) :: self
    integer, intent(out), optional :: status
    call report(c_trainer_finish(self%c), status)
  end subroutine

  recursive subroutine evaluate(self, dataset, status)
    class(etude_trainer), intent(inout) :: self
    class(etude_dataset), intent(in), optional :: dataset
    integer, intent(out), optional :: status
    if (present(dataset)) then
      call report(c_trainer_evaluate(self%c, dataset%c), status)
    else
      call report(c_trainer_evaluate(self%c, c_null_ptr), status)
    end if
  end subroutine

  recursive subroutine predict(self, inputs, outputs, status)
    class(etude_trainer), intent(inout) :: self
    class(etude_arrays), intent(in), target :: inputs
    class(etude_arrays), intent(in), target, optional :: outputs
    integer, intent(out), optional :: status
    type(c_tensor) :: given(count_of(inputs))
    type(c_tensor), allocatable :: wanted(:)
    call get_tensors(inputs, given)
    if (present(outputs)) then
      allocate (wanted(count_of(outputs)))
      call get_tensors(outputs, wanted)
    else
      allocate (wanted(0))
    end if
    call report(c_trainer_predict(self%c, given, size(given, kind=c_int32_t), wanted, size(wanted, kind=c_int32_t)), status)
  end subroutine

  function output(self, index, status) result(view)
    class(etude_trainer), intent(in) :: self
    integer, intent(in) :: index
    integer, intent(out), optional :: status
    type(etude_view) :: view
    type(c_tensor) :: tensor
    call report(c_trainer_output(self%c, int(index - 1, c_int32_t), tensor), status)
    view = view_of(tensor)
  end function

  recursive subroutine save_model(self, folder, status)
    class(etude_trainer), intent(inout) :: self
    character(*), intent(in) :: folder
    integer, intent(out), optional :: status
    call report(c_trainer_save_model(self%c, c_string(folder)), status)
  end subroutine

  recursive subroutine save_checkpoint(self, status)
    class(etude_trainer), intent(inout) :: self
    integer, intent(out), optional :: status
    call report(c_trainer_save_checkpoint(self%c), status)
  end subroutine

  subroutine pause(self, status)
    class(etude_trainer), intent(in) :: self
    integer, intent(out), optional :: status
    call report(c_trainer_pause(self%c), status)
  end subroutine

  subroutine resume(self, status)
    class(etude_trainer), intent(in) :: self
    integer, intent(out), optional :: status
    call report(c_trainer_resume(self%c), status)
  end subroutine

  subroutine cancel(self, reason, status)
    class(etude_trainer), intent(in) :: self
    character(*), intent(in), optional :: reason
    integer, intent(out), optional :: status
    character(:), allocatable :: text
    if (present(reason)) text = c_string(reason)
    call report(c_trainer_cancel(self%c, text), status)
  end subroutine

  ! ---- what a trainer knows ----

  function trainer_number(self, name, status) result(value)
    class(etude_trainer), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: status
    real(real64) :: value
    value = 0
    call report(c_trainer_number(self%c, c_string(name), value), status)
  end function

  function state(self, status) result(json)
    class(etude_trainer), intent(in) :: self
    integer, intent(out), optional :: status
    character(:), allocatable :: json
    type(c_ptr) :: text
    text = c_null_ptr
    call report(c_trainer_state(self%c, text), status)
    json = fortran_string(text)
  end function

  function parameter_count(self, status) result(count)
    class(etude_trainer), intent(in) :: self
    integer, intent(out), optional :: status
    integer :: count
    integer(c_int64_t) :: found
    found = 0
    call report(c_trainer_parameter_count(self%c, found), status)
    count = int(found)
  end function

  function parameter_name(self, index, status) result(name)
    class(etude_trainer), intent(in) :: self
    integer, intent(in) :: index
    integer, intent(out), optional :: status
    character(:), allocatable :: name
    type(c_ptr) :: text
    text = c_null_ptr
    call report(c_trainer_parameter_name(self%c, int(index - 1, c_int64_t), text), status)
    name = fortran_string(text)
  end function

  function trainer_parameter(self, name, status) result(view)
    class(etude_trainer), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: status
    type(etude_view) :: view
    type(c_tensor) :: tensor
    call report(c_trainer_parameter(self%c, c_string(name), tensor), status)
    view = view_of(tensor)
  end function

  function gradient(self, name, status) result(view)
    class(etude_trainer), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: status
    type(etude_view) :: view
    type(c_tensor) :: tensor
    call report(c_trainer_gradient(self%c, c_string(name), tensor), status)
    view = view_of(tensor)
  end function

  ! ---- procedures of the program ----

  !> Adds a registration to the list of the variable that owns the trainer.
  function register(self, user) result(new)
    class(etude_trainer), intent(inout) :: self
    class(*), intent(inout), target, optional :: user
    type(registration), pointer :: new
    allocate (new)
    if (present(user)) new%user => user
    if (self%is_borrowed) then
      new%next => self%registrations%next
      self%registrations%next => new
    else
      new%next => self%registrations
      self%registrations => new
    end if
  end function

  !> Whether this is called in one of the trainer's callbacks.
  logical function is_running(self)
    class(etude_trainer), intent(in) :: self
    type(registration), pointer :: each
    is_running = .false.
    each => self%registrations
    do while (associated(each))
      is_running = is_running .or. each%is_running
      each => each%next
    end do
  end function

  subroutine on(self, event, callback, user, status)
    class(etude_trainer), intent(inout) :: self
    character(*), intent(in) :: event
    procedure(etude_callback) :: callback
    class(*), intent(inout), target, optional :: user
    integer, intent(out), optional :: status
    type(registration), pointer :: new
    new => register(self, user)
    new%callback => callback
    call report(c_trainer_on(self%c, c_string(event), c_funloc(run_callback), c_loc(new)), status)
  end subroutine

  recursive function run_callback(event, user) bind(c) result(failed)
    type(c_ptr), value :: event, user
    integer(c_int32_t) :: failed
    type(registration), pointer :: registered
    type(etude_trainer) :: trainer
    integer :: status
    call c_f_pointer(user, registered)
    call borrow(trainer, c_event_trainer(event), registered)
    status = etude_ok
    registered%is_running = .true.
    call registered%callback(etude_event(event), trainer, registered%user, status)
    registered%is_running = .false.
    failed = status
  end function

  recursive function run_optimizer(c, learning_rate, user) bind(c) result(failed)
    type(c_ptr), value :: c, user
    real(c_double), value :: learning_rate
    integer(c_int32_t) :: failed
    type(registration), pointer :: registered
    type(etude_trainer) :: trainer
    integer :: status
    call c_f_pointer(user, registered)
    call borrow(trainer, c, registered)
    status = etude_ok
    registered%is_running = .true.
    call registered%optimizer(trainer, learning_rate, registered%user, status)
    registered%is_running = .false.
    failed = status
  end function

  !> Makes `trainer` refer to a trainer of the library without owning it.
  subroutine borrow(trainer, c, running)
    type(etude_trainer), intent(inout) :: trainer
    type(c_ptr), intent(in) :: c
    type(registration), pointer, intent(in) :: running
    trainer%c = c
    trainer%is_borrowed = .true.
    trainer%registrations => running
  end subroutine

  subroutine request(self, what, status)
    class(etude_trainer), intent(inout) :: self
    integer, intent(in) :: what
    integer, intent(out), optional :: status
    call report(c_trainer_request(self%c, int(what, c_int32_t)), status)
  end subroutine

  function event_name(self) result(name)
    class(etude_event), intent(in) :: self
    character(:), allocatable :: name
    name = fortran_string(c_event_name(self%c))
  end function

  function event_number(self, name, status) result(value)
    class(etude_event), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: status
    real(real64) :: value
    value = 0
    call report(c_event_number(self%c, c_string(name), value), status)
  end function

  function event_text(self, name, status) result(text)
    class(etude_event), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: status
    character(:), allocatable :: text
    type(c_ptr) :: found
    found = c_null_ptr
    call report(c_event_text(self%c, c_string(name), found), status)
    text = fortran_string(found)
  end function
end module
