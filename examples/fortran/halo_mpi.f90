!> The halo of a domain that is divided among the processes of mpirun.
module halo
  use, intrinsic :: iso_fortran_env, only: real64
  use mpi
  implicit none
  integer, protected :: rank = 0, ranks = 1
contains
  subroutine start()
    integer :: error
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  end subroutine

  subroutine finish()
    integer :: error
    call MPI_Finalize(error)
  end subroutine

  !> Fills the first and last `width` cells of each column from the neighbours, in a domain that is periodic.
  subroutine exchange(u, width)
    real(real64), intent(inout) :: u(:, :)
    integer, intent(in) :: width
    real(real64), dimension(width, size(u, 2)) :: sent, received
    integer :: n, left, right, error
    n = size(u, 1) - 2 * width
    left = modulo(rank - 1, ranks)
    right = modulo(rank + 1, ranks)
    sent = u(n + 1:n + width, :)
    call MPI_Sendrecv(sent, size(sent), MPI_DOUBLE_PRECISION, right, 0, received, size(received), MPI_DOUBLE_PRECISION, left, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    u(:width, :) = received
    sent = u(width + 1:2 * width, :)
    call MPI_Sendrecv(sent, size(sent), MPI_DOUBLE_PRECISION, left, 1, received, size(received), MPI_DOUBLE_PRECISION, right, 1, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    u(n + width + 1:, :) = received
  end subroutine

  !> The sum over all processes.
  real(real64) function total(x)
    real(real64), intent(in) :: x
    integer :: error
    call MPI_Allreduce(x, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end function
end module
