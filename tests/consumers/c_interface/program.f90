! Fits a linear model of three inputs and two outputs: program MODEL.pt2.
program fit
  use, intrinsic :: iso_fortran_env, only: real32
  use etude
  implicit none
  real(real32), target :: inputs(3, 8), labels(2, 8)
  type(etude_options) :: options
  type(etude_arrays) :: batch
  type(etude_trainer) :: trainer
  character(4096) :: model
  logical :: should_stop
  integer :: i, j

  do i = 1, 8
    do j = 1, 3
      inputs(j, i) = real(ibits(i - 1, j - 1, 1), real32)
    end do
  end do
  labels(1, :) = inputs(1, :) + inputs(2, :)
  labels(2, :) = inputs(3, :) - 1
  call batch%add("input", inputs)
  call batch%add("labels", labels)
  call options%set("loss", "mse")
  call options%set("learning_rate", 0.1)
  call options%set("max_steps", 300)
  call options%set("save_strategy", "no")
  call get_command_argument(1, model)
  call trainer%create(trim(model), options)
  call trainer%begin()
  should_stop = .false.
  do while (.not. should_stop)
    call trainer%step(batch, should_stop)
  end do
  if (trainer%number("loss") >= 1e-3) error stop "the loss should be below 1e-3"
  call trainer%finish()
  call trainer%destroy()
  print "(a)", "fitted in Fortran"
end program
