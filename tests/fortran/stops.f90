!> Ends with error stop: stops ERROR.
program stops
  use etude
  implicit none
  type(etude_trainer) :: trainer, copy
  type(etude_options) :: options
  character(20) :: error
  call get_command_argument(1, error)
  select case (error)
  case ("file")
    call trainer%create("missing.pt2")
  case ("option")
    call options%set("lerning_rate", 1e-3)
  case ("copy")
    call options%set("learning_rate", 1e-3)
    call trainer%create(model(), options)
    copy = trainer
  end select
contains
  function model() result(path)
    character(400) :: path
    call get_environment_variable("ETUDE_TEST_MODELS", path)
    path = trim(path) // "/linear.pt2"
  end function
end program
