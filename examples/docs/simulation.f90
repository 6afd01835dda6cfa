!> The program of simulation.c in Fortran; docs/simulations.md explains both.
program simulation
  use, intrinsic :: iso_fortran_env, only: real32
  use etude
  implicit none

  integer, parameter :: cells = 40, members = 16
  ! The first dimension varies fastest, so the members are the last.
  real(real32), target :: before(cells, 1, members), field(cells, 1, members)
  type(etude_options) :: options
  type(etude_arrays) :: batch, state
  type(etude_trainer) :: trainer
  logical :: is_first, should_stop
  integer :: step

  call options%set("loss", "mse")
  call options%set("learning_rate", 3e-3)
  call options%set("max_steps", 600)
  call options%set("save_steps", 100)
  call options%set("output_dir", "training")

  ! These have the addresses of the arrays. Nothing is copied.
  call batch%add("field", before)
  call batch%add("labels", field)
  call state%add("field", field)
  call options%add_state(state)
  call trainer%create("model.pt2", options)

  call initialize(nint(trainer%number("rank")))
  is_first = trainer%number("rank") < 1
  ! Resumes from the newest checkpoint if there is one, which also restores
  ! `field`.
  call trainer%begin("newest")
  do
    call time_step()
    call trainer%step(batch, should_stop)
    step = nint(trainer%number("global_step"))
    if (mod(step, 100) == 0 .and. is_first) &
      print "(a, i0, a, es15.9)", "step ", step, ": loss ", trainer%number("loss")
    if (should_stop) exit
  end do
  call trainer%finish()
  call trainer%save_model("trained")
  call check_prediction()
  call trainer%destroy()

contains

  ! Each process has its own ensemble.
  subroutine initialize(rank)
    integer, intent(in) :: rank
    integer :: i, j
    do i = 1, members
      do j = 1, cells
        field(j, 1, i) = 8 + sin(real(members * rank + i + 3 * j - 3, real32))
      end do
    end do
  end subroutine

  subroutine time_step()
    real(real32) :: x(cells)
    integer :: i, small
    before = field
    do i = 1, members
      do small = 1, 10
        x = field(:, 1, i)
        field(:, 1, i) = x + 0.005 * ((cshift(x, 1) - cshift(x, -2)) &
                                      * cshift(x, -1) - x + 8)
      end do
    end do
  end subroutine

  ! [predict]
  subroutine check_prediction()
    real(real32), target :: predicted(cells, 1, members)
    type(etude_arrays) :: inputs, outputs
    call time_step()
    call inputs%add("field", before)
    call outputs%add("", predicted)
    call trainer%predict(inputs, outputs)
    if (is_first) print "(a, es15.9)", "error of a time step: ", &
      norm2(predicted - field) / sqrt(real(size(field), real32))
  end subroutine
  ! [/predict]
end program
