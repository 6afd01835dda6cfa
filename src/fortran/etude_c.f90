!> The C interface, etude.h, as Fortran sees it. Programs use the module `etude`.
module etude_c
  use, intrinsic :: iso_c_binding
  implicit none
  public

  !> What a call returns in `status`: etude.h says what each means.
  integer, parameter :: etude_ok = 0, etude_invalid_argument = 1, etude_invalid_data = 2, etude_invalid_file = 3, &
                        etude_wrong_call = 4, etude_busy = 5, etude_out_of_memory = 6, etude_lost_process = 7, etude_failed = 8
  !> The level of a message.
  integer, parameter :: etude_level_info = 0, etude_level_warning = 1, etude_level_error = 2
  !> The type of an array's elements, and the device they are on.
  integer, parameter :: etude_float32 = 0, etude_float64 = 1, etude_float16 = 2, etude_bfloat16 = 3, etude_int8 = 4, &
                        etude_int16 = 5, etude_int32 = 6, etude_int64 = 7, etude_uint8 = 8, etude_bool = 9
  integer, parameter :: etude_cpu = 0, etude_cuda = 1
  !> What a program may request.
  integer, parameter :: etude_stop = 0, etude_stop_epoch = 1, etude_save = 2, etude_evaluate = 3, etude_log = 4

  type, bind(c) :: c_tensor
    type(c_ptr) :: name = c_null_ptr, data = c_null_ptr, shape = c_null_ptr, strides = c_null_ptr
    integer(c_int32_t) :: rank = 0, dtype = 0, device_type = 0, device_index = 0
  end type

  ! Strings end in c_null_char; an absent one is a null pointer.
  interface
    type(c_ptr) function etude_last_error() bind(c)
      import
    end function

    integer(c_int32_t) function etude_version() bind(c)
      import
    end function

    integer(c_int32_t) function c_set_message_handler(handler, user) bind(c, name="etude_set_message_handler")
      import
      type(c_funptr), value :: handler
      type(c_ptr), value :: user
    end function

    integer(c_int32_t) function c_options_create(options) bind(c, name="etude_options_create")
      import
      type(c_ptr), intent(inout) :: options
    end function

    subroutine c_options_destroy(options) bind(c, name="etude_options_destroy")
      import
      type(c_ptr), value :: options
    end subroutine

    integer(c_int32_t) function c_options_set(options, name, value) bind(c, name="etude_options_set")
      import
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: name(*), value(*)
    end function

    integer(c_int32_t) function c_options_set_json(options, json) bind(c, name="etude_options_set_json")
      import
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: json(*)
    end function

    integer(c_int32_t) function c_options_set_train_dataset(options, dataset) bind(c, name="etude_options_set_train_dataset")
      import
      type(c_ptr), value :: options, dataset
    end function

    integer(c_int32_t) function c_options_add_eval_dataset(options, name, dataset) bind(c, name="etude_options_add_eval_dataset")
      import
      type(c_ptr), value :: options, dataset
      character(kind=c_char), intent(in), optional :: name(*)
    end function

    integer(c_int32_t) function c_options_add_state(options, state) bind(c, name="etude_options_add_state")
      import
      type(c_ptr), value :: options
      type(c_tensor), intent(in) :: state
    end function

    integer(c_int32_t) function c_options_set_optimizer(options, step, user) bind(c, name="etude_options_set_optimizer")
      import
      type(c_ptr), value :: options, user
      type(c_funptr), value :: step
    end function

    integer(c_int32_t) function c_dataset_create(tensors, count, dataset) bind(c, name="etude_dataset_create")
      import
      type(c_tensor), intent(in) :: tensors(*)
      integer(c_int32_t), value :: count
      type(c_ptr), intent(inout) :: dataset
    end function

    subroutine c_dataset_destroy(dataset) bind(c, name="etude_dataset_destroy")
      import
      type(c_ptr), value :: dataset
    end subroutine

    integer(c_int32_t) function c_dataset_set_divided(dataset, is_divided) bind(c, name="etude_dataset_set_divided")
      import
      type(c_ptr), value :: dataset
      integer(c_int32_t), value :: is_divided
    end function

    integer(c_int32_t) function c_trainer_create(model, options, trainer) bind(c, name="etude_trainer_create")
      import
      character(kind=c_char), intent(in) :: model(*)
      type(c_ptr), value :: options
      type(c_ptr), intent(inout) :: trainer
    end function

    subroutine c_trainer_destroy(trainer) bind(c, name="etude_trainer_destroy")
      import
      type(c_ptr), value :: trainer
    end subroutine

    integer(c_int32_t) function c_trainer_train(trainer, checkpoint) bind(c, name="etude_trainer_train")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: checkpoint(*)
    end function

    integer(c_int32_t) function c_trainer_begin(trainer, checkpoint) bind(c, name="etude_trainer_begin")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: checkpoint(*)
    end function

    integer(c_int32_t) function c_trainer_step(trainer, tensors, count, should_stop) bind(c, name="etude_trainer_step")
      import
      type(c_ptr), value :: trainer
      type(c_tensor), intent(in) :: tensors(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), intent(inout) :: should_stop
    end function

    integer(c_int32_t) function c_trainer_backward(trainer, tensors, count) bind(c, name="etude_trainer_backward")
      import
      type(c_ptr), value :: trainer
      type(c_tensor), intent(in) :: tensors(*)
      integer(c_int32_t), value :: count
    end function

    integer(c_int32_t) function c_trainer_update(trainer, should_stop) bind(c, name="etude_trainer_update")
      import
      type(c_ptr), value :: trainer
      integer(c_int32_t), intent(inout) :: should_stop
    end function

    integer(c_int32_t) function c_trainer_finish(trainer) bind(c, name="etude_trainer_finish")
      import
      type(c_ptr), value :: trainer
    end function

    integer(c_int32_t) function c_trainer_evaluate(trainer, dataset) bind(c, name="etude_trainer_evaluate")
      import
      type(c_ptr), value :: trainer, dataset
    end function

    integer(c_int32_t) function c_trainer_predict(trainer, inputs, input_count, outputs, output_count) &
        bind(c, name="etude_trainer_predict")
      import
      type(c_ptr), value :: trainer
      type(c_tensor), intent(in) :: inputs(*), outputs(*)
      integer(c_int32_t), value :: input_count, output_count
    end function

    integer(c_int32_t) function c_trainer_output(trainer, index, output) bind(c, name="etude_trainer_output")
      import
      type(c_ptr), value :: trainer
      integer(c_int32_t), value :: index
      type(c_tensor), intent(inout) :: output
    end function

    integer(c_int32_t) function c_trainer_save_model(trainer, folder) bind(c, name="etude_trainer_save_model")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: folder(*)
    end function

    integer(c_int32_t) function c_trainer_save_checkpoint(trainer) bind(c, name="etude_trainer_save_checkpoint")
      import
      type(c_ptr), value :: trainer
    end function

    integer(c_int32_t) function c_trainer_pause(trainer) bind(c, name="etude_trainer_pause")
      import
      type(c_ptr), value :: trainer
    end function

    integer(c_int32_t) function c_trainer_resume(trainer) bind(c, name="etude_trainer_resume")
      import
      type(c_ptr), value :: trainer
    end function

    integer(c_int32_t) function c_trainer_cancel(trainer, reason) bind(c, name="etude_trainer_cancel")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: reason(*)
    end function

    integer(c_int32_t) function c_trainer_number(trainer, name, value) bind(c, name="etude_trainer_number")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(inout) :: value
    end function

    integer(c_int32_t) function c_trainer_state(trainer, json) bind(c, name="etude_trainer_state")
      import
      type(c_ptr), value :: trainer
      type(c_ptr), intent(inout) :: json
    end function

    integer(c_int32_t) function c_trainer_parameter_count(trainer, count) bind(c, name="etude_trainer_parameter_count")
      import
      type(c_ptr), value :: trainer
      integer(c_int64_t), intent(inout) :: count
    end function

    integer(c_int32_t) function c_trainer_parameter_name(trainer, index, name) bind(c, name="etude_trainer_parameter_name")
      import
      type(c_ptr), value :: trainer
      integer(c_int64_t), value :: index
      type(c_ptr), intent(inout) :: name
    end function

    integer(c_int32_t) function c_trainer_parameter(trainer, name, parameter) bind(c, name="etude_trainer_parameter")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*)
      type(c_tensor), intent(inout) :: parameter
    end function

    integer(c_int32_t) function c_trainer_gradient(trainer, name, gradient) bind(c, name="etude_trainer_gradient")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*)
      type(c_tensor), intent(inout) :: gradient
    end function

    integer(c_int32_t) function c_trainer_on(trainer, event, callback, user) bind(c, name="etude_trainer_on")
      import
      type(c_ptr), value :: trainer, user
      character(kind=c_char), intent(in) :: event(*)
      type(c_funptr), value :: callback
    end function

    integer(c_int32_t) function c_trainer_request(trainer, request) bind(c, name="etude_trainer_request")
      import
      type(c_ptr), value :: trainer
      integer(c_int32_t), value :: request
    end function

    type(c_ptr) function c_event_name(event) bind(c, name="etude_event_name")
      import
      type(c_ptr), value :: event
    end function

    type(c_ptr) function c_event_trainer(event) bind(c, name="etude_event_trainer")
      import
      type(c_ptr), value :: event
    end function

    integer(c_int32_t) function c_event_number(event, name, value) bind(c, name="etude_event_number")
      import
      type(c_ptr), value :: event
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(inout) :: value
    end function

    integer(c_int32_t) function c_event_text(event, name, text) bind(c, name="etude_event_text")
      import
      type(c_ptr), value :: event
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(inout) :: text
    end function

    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  !> A C string, or "" for a null pointer.
  function fortran_string(text) result(string)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: string
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    if (.not. c_associated(text)) then
      string = ""
      return
    end if
    call c_f_pointer(text, characters, [c_strlen(text)])
    allocate (character(size(characters)) :: string)
    do i = 1, size(characters)
      string(i:i) = characters(i)
    end do
  end function

  !> Fortran pads strings with blanks, which C would take as part of the text.
  pure function c_string(text) result(string)
    character(*), intent(in) :: text
    character(len_trim(text) + 1, kind=c_char) :: string
    string = trim(text) // c_null_char
  end function
end module
